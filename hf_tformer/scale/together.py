"""Run work in all processes of a training, so that a failure in one is an error in all."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

Result = TypeVar("Result")


class TogetherError(Exception):
    """The reasons why one process or several failed, each reason once."""


def joined_count() -> int:
    """Return how many processes have joined the process group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def joined_rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def together(work: Callable[[], Result], group: dist.ProcessGroup | None = None) -> list[Result]:
    """Call `work` in every process, and return the results of all of them in every process.

    Every process raises TogetherError if one fails.
    """
    outcome: tuple[Result] | str  # the result, or the reason why there is none
    try:
        outcome = (work(),)
    except Exception as error:
        outcome = reason(error)
    outcomes = [outcome]
    if dist.is_initialized():
        outcomes = [outcome] * dist.get_world_size(group)
        dist.all_gather_object(outcomes, outcome, group=group)
    if faults := dict.fromkeys(found for found in outcomes if isinstance(found, str)):
        raise TogetherError("; ".join(faults))
    return [found[0] for found in outcomes if isinstance(found, tuple)]


def first_alone(work: Callable[[], Result], group: dist.ProcessGroup | None = None) -> Result:
    """Call `work` in the first process, and return its result in every process."""
    return together(lambda: [work()] if joined_rank() == 0 else [], group)[0][0]


def reason(error: BaseException) -> str:
    """Return why an error occurred in a few words: those of the system if it refused something."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TogetherError):
            return str(cause)
        if isinstance(cause, OSError) and cause.strerror:
            place = f" ({cause.filename})" if cause.filename else ""
            return f"{cause.strerror}{place}"
        error, cause = cause, cause.__cause__ or cause.__context__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no more is known'}"
