"""Compare the answers of a new folder with those of the old code."""

from dataclasses import dataclass

import numpy as np

from .witness import Answers

TOLERANCE = 1e-4  # of the scale of an answer, in float32


@dataclass(frozen=True)
class Agreement:
    """A comparison: what agrees, in one sentence; `fault` is the first difference, or empty."""

    sentence: str
    fault: str = ""


def compare(old: Answers, new: Answers) -> Agreement:
    """Return how far the new answers are from the old ones; text has to be equal."""
    if new.error:
        return Agreement("", f"it does not open: {new.error}")
    outputs = [name for name in old.tensors if name.endswith("tokens")]
    outputs.sort(key=lambda name: int(name.split()[0]))
    distances = [distance(old.tensors[name], new.tensors.get(name)) for name in outputs]
    for name, far in zip(outputs, distances, strict=True):
        if not far <= TOLERANCE:  # NaN is no agreement
            return Agreement("", f"the answers to {name} differ by {far:.1e} of their scale")
    said = [f"answers within {max(distances):.1e} of their scale"]
    states, fault = compared_states(old, new)
    if fault:
        return Agreement("", fault)
    said.append(states)
    for name in ("greedy text", "text of generate"):
        if name in old.tensors:
            if not np.array_equal(old.tensors[name], new.tensors.get(name, ())):
                return Agreement("", f"the {name} differs{because(new, name)}")
            said.append(f"{name} equal")
    if old.generate_error:
        said.append(f"the old code does not generate ({old.generate_error})")
        if new.generate_error:
            said.append(f"neither does the new one ({new.generate_error})")
    return Agreement(", ".join(said))


def compared_states(old: Answers, new: Answers) -> tuple[str, str]:
    """Return a sentence on the hidden states, or the first difference.

    Code counts the last state before its last norm or after it; the answers follow from it.
    """
    both = {n: new.tensors[n] for n in old.tensors if "hidden state" in n and n in new.tensors}
    far = {name: distance(old.tensors[name], state) for name, state in both.items()}
    if not far:
        return "no hidden states to compare", ""
    last = max(int(name.rpartition(" ")[2]) for name in far)
    ends = {name for name in far if name.endswith(f"hidden state {last}")}
    for name in far.keys() - ends:
        if not far[name] <= TOLERANCE:
            return "", f"{name} differs by {far[name]:.1e} of its scale"
    within = f"hidden states within {max(far[name] for name in far.keys() - ends):.1e}"
    same_end = all(far[name] <= TOLERANCE for name in ends)
    return within if same_end else f"{within} (the last is counted before another norm)", ""


def because(new: Answers, name: str) -> str:
    failed = new.generate_error and name not in new.tensors
    return f": generate fails ({new.generate_error})" if failed else ""


def distance(one: np.ndarray, other: np.ndarray | None) -> float:
    """Return the largest difference by the scale of the first; infinity for another shape."""
    if other is None or one.shape != other.shape:
        return float("inf")
    scale = max(float(np.abs(one).max()), 1e-6)
    return float(np.abs(one - other).max()) / scale
