"""What all processes of a run do together: a failure in one of them is an error in all."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist


class TogetherError(Exception):
    """What failed in one process or several: the reasons, each once."""


def joined_count() -> int:
    """How many processes can speak to each other."""
    return dist.get_world_size() if dist.is_initialized() else 1


def joined_rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def together(work: Callable[[], Any], group: dist.ProcessGroup | None = None) -> list:
    """What `work()` gives in each process, known to all; TogetherError where it fails in any."""
    result, fault = None, None
    try:
        result = work()
    except Exception as error:
        fault = reason(error)
    outcomes = [(result, fault)]
    if dist.is_initialized():
        outcomes = [None] * dist.get_world_size(group)
        dist.all_gather_object(outcomes, (result, fault), group=group)
    if faults := dict.fromkeys(fault for _, fault in outcomes if fault):
        raise TogetherError("; ".join(faults))
    return [result for result, _ in outcomes]


def first_alone(work: Callable[[], Any], group: dist.ProcessGroup | None = None) -> Any:
    """What `work()` gives in the first process, known to all; the others wait for it."""
    is_first = joined_rank() == 0
    return together(lambda: work() if is_first else None, group)[0]


def reason(error: BaseException) -> str:
    """Why, in a few words: the system's own where it refused something."""
    while error is not None:
        if isinstance(error, TogetherError):
            return str(error)
        if isinstance(error, OSError) and error.strerror:
            place = f" ({error.filename})" if error.filename else ""
            return f"{error.strerror}{place}"
        last, error = error, error.__cause__ or error.__context__
    lines = str(last).strip().splitlines()
    return f"{type(last).__name__}: {lines[0] if lines else 'no more is known'}"
