"""The weights of a file beside the model's, tensor by tensor."""

from collections.abc import Callable

from transformers import PreTrainedConfig

from ..engine.aliases import State
from ..engine.nearness import distance
from .answer import DIFFERS, SAME, Answer, counted
from .causes import changed_weights

WEIGHTS = "weights"
Bound = Callable[[str], float]  # by the name of a tensor


def compare_weights(config: PreTrainedConfig, ours: State, theirs: State, bound: Bound) -> Answer:
    """Compare tensors by their names; each may differ by what its type rounds."""
    if lacking := sorted(ours.keys() - theirs.keys()):
        seen = f"{counted(len(lacking), 'tensor')} of {len(ours)} missing, first {lacking[0]}"
        return Answer(WEIGHTS, DIFFERS, seen, "a part of the model was left out")
    shaped = [name for name in ours if ours[name].shape != theirs[name].shape]
    if shaped:
        name = shaped[0]
        seen = f"{name} is {list(theirs[name].shape)} there, and {list(ours[name].shape)} here"
        return Answer(WEIGHTS, DIFFERS, seen, "it is a model of another size")
    off = {name: distance(ours[name], theirs[name]) for name in ours}
    wrong = [name for name in ours if not off[name] <= bound(name)]
    if not wrong:
        worst = max(off, key=lambda name: off[name] / bound(name))
        seen = f"{counted(len(ours), 'tensor')}, {off[worst]:.1e} of its norm at most, in {worst}"
        return Answer(WEIGHTS, SAME, seen)
    seen = f"{counted(len(wrong), 'tensor')} of {len(ours)} differ, first {wrong[0]}"
    return Answer(WEIGHTS, DIFFERS, seen, cause_of(config, ours, theirs, wrong, bound))


def cause_of(
    config: PreTrainedConfig, ours: State, theirs: State, wrong: list[str], bound: Bound
) -> str:
    """Return the fault that makes all wrong tensors of the model's own."""
    for said, changed in changed_weights(config, ours):
        fits = (
            name in changed
            and changed[name].shape == theirs[name].shape
            and distance(changed[name], theirs[name]) <= bound(name)
            for name in wrong
        )
        if all(fits):
            return said
    if any(not theirs[name].isfinite().all() for name in wrong):
        return "there are numbers that are not finite"
    same = [name for name in wrong if not theirs[name].any()]
    if len(same) == len(wrong):
        return "there they are zero"
    return "they are other numbers: another checkpoint, or a damaged file"
