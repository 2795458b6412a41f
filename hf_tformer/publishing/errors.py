"""PublishError, and sentences for the errors of the Hub's client."""

from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from safetensors import SafetensorError

from ..path_safety import printable


class PublishError(Exception):
    """A sentence that says what went wrong, and whether anything was changed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))  # it names files and values that others chose


class HubErrors:
    """A context that raises errors of the Hub's client as PublishErrors.

    Their sentences say what went wrong, and end with `state`: what has been changed so far.
    """

    def __init__(self, repo_id: str, verb: str = "publish"):
        self.repo_id, self.verb = repo_id, verb
        self.state = "nothing was changed there"

    def __enter__(self) -> "HubErrors":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        sentence = None if isinstance(error, PublishError) else self.sentence(error)
        if sentence:
            raise PublishError(f"{self.repo_id}: {sentence} ({self.state})") from error

    def sentence(self, error: BaseException | None) -> str | None:
        if isinstance(error, GatedRepoError):
            return "the repository is gated: ask for access on its page, then `hf auth login`"
        if isinstance(error, RepositoryNotFoundError):
            return "it does not exist, or your token may not see it: check both (`hf auth login`)"
        if isinstance(error, HfHubHTTPError):
            return self.sentence_of_status(getattr(error.response, "status_code", None))
        if isinstance(error, RuntimeError) and error.__cause__:  # raised by uploads of large files
            return self.sentence(error.__cause__)
        # The client's HTTP library has had several names.
        if type(error).__module__.startswith("http"):
            return f"the connection to the Hub was lost ({type(error).__name__}): {self.verb} again"
        if isinstance(error, (OSError, SafetensorError)):
            return f"the files could not be written or read: {error}"
        return None

    def sentence_of_status(self, status: int | None) -> str:
        if status in (401, 403):
            return f"the Hub refused ({status}): `hf auth login` with a token that may write"
        if status in (409, 412):
            return f"someone else pushed at the same moment: look at it, then {self.verb} again"
        return f"the Hub answered {status}: {self.verb} again"
