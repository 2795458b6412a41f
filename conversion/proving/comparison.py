"""Ask a model and a file the same questions, and judge the file by all answers."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hf_tformer.path_safety import fault_of_path

from ..engine.aliases import FilePath
from ..engine.errors import ConversionError
from ..runtimes.gguf.importing import gguf_file
from .answer import DIFFERS, NEAR, UNASKED, Answer, unasked
from .gguf_file import OpenedGguf
from .model import Model
from .opened import Opened, OpenedExport, runtime_of
from .opened_model import OpenedModel
from .outputs import GREEDY, LOGITS, ask_greedy, ask_logits
from .words import ask_chat, ask_ids, ask_special

CONFIG = "config.json"


@dataclass(frozen=True)
class Comparison:
    """All answers about a file, in the order in which they were asked."""

    model: Path
    file: Path
    title: str
    answers: tuple[Answer, ...]

    @property
    def is_judged(self) -> bool:
        """Return whether something differs or logits agree; what is not asked proves nothing."""
        asked = [one.question for one in self.answers if one.verdict != UNASKED]
        return LOGITS in asked or not self.is_same

    @property
    def is_same(self) -> bool:
        return not any(answer.verdict == DIFFERS for answer in self.answers)

    def verdict(self) -> str:
        wrong = [one for one in self.answers if one.verdict == DIFFERS]
        asked = [one for one in self.answers if one.verdict != UNASKED]
        if wrong:
            named = ", ".join(one.question for one in wrong)
            return f"not the same model: {len(wrong)} of {len(asked)} answers differ ({named})"
        if not self.is_judged:
            return "not judged: its logits could not be asked"
        near = ", as far as few bits show" if any(one.verdict == NEAR for one in asked) else ""
        return f"the same model{near}: {len(asked)} answers agree"

    def as_json(self) -> str:
        told = {"model": str(self.model), "file": str(self.file), "runtime": self.title}
        answers = [asdict(answer) for answer in self.answers]
        return json.dumps({**told, "same": self.is_same, "answers": answers}, indent=2)

    def as_table(self) -> str:
        width = max(len(one.question) for one in self.answers)
        lines = []
        for one in self.answers:
            lines.append(f"{one.question:{width}}  {one.verdict:9}  {one.seen}")
            if one.cause:
                lines.append(f"{'':{width}}  {'':9}  likely: {one.cause}")
        return "\n".join([*lines, f"{self.file}, by {self.title}: {self.verdict()}"])


def prove(model: FilePath, file: FilePath) -> Comparison:
    """Compare a file with the model that it was made from; nothing is written."""
    if Path(model).is_file():
        raise ConversionError(f"{model} is a file: give the folder of the model first, then FILE")
    opened = open_file(Model(model), Path(file))
    _ = opened.model.loaded, opened.running  # what does not open is not judged
    answers = [ask_ids(opened), ask_chat(opened), ask_special(opened), *opened.more_answers()]
    for name, question in ((LOGITS, ask_logits), (GREEDY, ask_greedy)):
        try:
            answers.append(question(opened))
        except ConversionError as error:
            answers.append(unasked(name, f"the file could not be asked ({error})"))
    return Comparison(Path(model), Path(file), opened.title, tuple(answers))


def open_file(model: Model, path: Path) -> Opened:
    if path.exists() and (fault := fault_of_path(path)):
        raise ConversionError(fault)
    if (found := gguf_file(path)) is not None:
        return OpenedGguf(model, found)
    if path.is_dir() and (runtime := runtime_of(path)) is not None:
        return OpenedExport(model, path, runtime)
    if (path / CONFIG).is_file():
        return OpenedModel(model, path)
    raise ConversionError(
        f"{path} is none of what can be asked: give a .gguf file, a folder of ONNX, OpenVINO, "
        "CTranslate2 or ExecuTorch, or a folder of transformers"
    )
