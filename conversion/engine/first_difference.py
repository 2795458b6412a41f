"""Find the layer behind which two models differ first, where both have stacks of equal lengths.

What cannot be found is not guessed: a stack is a list of modules of one class, and its hidden
states are compared only where both models have them in one shape.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from .aliases import Batch

LISTS = (nn.ModuleList, nn.Sequential)


@dataclass
class Stack:
    """A list of layers, and the hidden states before the first one and behind each.

    A model that takes one sequence at a time has several calls.
    """

    name: str
    layers: list[nn.Module]
    calls: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    def remember(self, place: int, state: object) -> None:
        state = state[0] if isinstance(state, tuple) and state else state
        if isinstance(state, torch.Tensor):
            self.calls.setdefault(place, []).append(state.detach())

    def watch(self) -> list[torch.utils.hooks.RemovableHandle]:
        def before(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            self.remember(0, args or kwargs.get("hidden_states"))

        def behind(place: int) -> Callable[[nn.Module, object, object], None]:
            return lambda module, args, output: self.remember(place, output)

        first = self.layers[0].register_forward_pre_hook(before, with_kwargs=True)
        rest = [
            layer.register_forward_hook(behind(place))
            for place, layer in enumerate(self.layers, start=1)
        ]
        return [first, *rest]

    def states(self, batch: Batch) -> list[torch.Tensor | None]:
        """Return the states of each place at real tokens, [tokens, width]; None if unknown."""
        is_decoder = "decoder" in self.name.split(".") and "decoder_attention_mask" in batch
        mask = batch["decoder_attention_mask" if is_decoder else "attention_mask"]
        places = range(len(self.layers) + 1)
        return [at_tokens(self.calls.get(place, []), mask) for place in places]


def at_tokens(calls: list[torch.Tensor], mask: torch.Tensor) -> torch.Tensor | None:
    if len(calls) == 1 and calls[0].shape[:2] == mask.shape:
        return calls[0][mask.bool()]
    if [call.shape[:-1].numel() for call in calls] == mask.sum(-1).tolist():
        return torch.cat([call.flatten(0, -2) for call in calls])
    return None


def hidden_states(
    model: nn.Module, run: Callable[[], object], batch: Batch
) -> dict[str, list[torch.Tensor | None]]:
    """Run a model, and return the hidden states of each of its stacks by name."""
    stacks = list(stacks_of(model))
    handles = [handle for stack in stacks for handle in stack.watch()]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return {stack.name: stack.states(batch) for stack in stacks}


def stacks_of(model: nn.Module) -> list[Stack]:
    """Return the outermost lists of modules of one class that have parameters and children."""
    found: list[Stack] = []
    for name, module in model.named_modules():
        layers = list(module.children())
        is_inside = any(name.startswith(f"{stack.name}.") for stack in found)
        is_list = isinstance(module, LISTS) and len({type(layer) for layer in layers}) == 1
        if name and is_list and not is_inside and any(layers[0].children()):
            found.append(Stack(name, layers))
    return found


def first_difference(
    one: dict[str, list[torch.Tensor | None]],
    other: dict[str, list[torch.Tensor | None]],
    tolerance: float,
) -> str:
    """Return where the hidden states of two models part, as the end of an error, or ""."""
    if not one or [*map(len, one.values())] != [*map(len, other.values())]:
        return ""
    for name, first, second in zip(one, one.values(), other.values(), strict=True):
        stack = next((f" of the {x}" for x in ("encoder", "decoder") if x in name.split(".")), "")
        for place, (a, b) in enumerate(zip(first, second, strict=True)):
            if a is None or b is None or a.shape != b.shape:
                return ""
            if not (a - b).abs().max() <= tolerance * max(1.0, float(a.abs().max())):
                where = f"behind layer {place - 1}" if place else "before the first layer"
                return f"; the first difference is {where}{stack}"
    return "; the first difference is behind the last layer"
