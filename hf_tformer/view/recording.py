"""What attention functions are called with: the numbers that the weights come from.

A model asks transformers' registry for its attention function. While `recording`, its eager one is
called through ours, which keeps query, key, scale and what is added to the scores.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

NAMES = ("eager_attention", "eager_attention_forward")  # ours, and that of transformers' models


@dataclass(frozen=True)
class Scores:
    """How the weights of a layer come about: softmax(query · key · scale + bias) over what is not
    hidden, each head alone.

    query  [heads, rows, size]      as it is compared: after rotations
    key    [heads, columns, size]
    hidden [rows, columns]          which columns a row does not see
    bias   [heads, rows, columns]   what distances add to the scores; None where nothing does
    cap    the bound of scores, or None
    cos, sin  [tokens, rotated sizes], which query and key were turned by; None without
    """

    query: "torch.Tensor"
    key: "torch.Tensor"
    hidden: "torch.Tensor"
    scale: float
    bias: "torch.Tensor | None"
    cap: float | None
    cos: "torch.Tensor | None"
    sin: "torch.Tensor | None"

    def weights(self, dtype: "torch.dtype | None" = None) -> "torch.Tensor":
        """Computed once more, as a model of that type rounds."""
        query, key = self.query.to(dtype), self.key.to(dtype)
        scores = query @ key.transpose(-1, -2) * self.scale
        if self.cap is not None:
            scores = (scores / self.cap).tanh() * self.cap
        if self.bias is not None:
            scores = scores + self.bias.to(dtype)
        return scores.float().masked_fill(self.hidden, float("-inf")).softmax(-1)


class NoEager(Exception):  # noqa: N818 (found by the way, and passed by)
    """A model whose eager function has another name than all others."""


@contextmanager
def recording(
    model: "PreTrainedModel",
) -> "Iterator[list[tuple[torch.Tensor, Callable[[], Scores | None]]]]":
    """Yields a list that grows: the weights of a layer as the model has them, and their scores."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    calls: list = []
    angles: dict = {}  # module → (cos, sin) of the text

    def eager(module, query, key, value, *args, **kwargs):
        function = eager_of(module)
        given = inspect.signature(function).bind(module, query, key, value, *args, **kwargs)
        output, weights = function(*given.args, **given.kwargs)
        named = given.arguments | given.arguments.get("kwargs", {})
        turned = angles.get(module, (None, None))
        calls.append((weights, lambda: read_scores(query, key, weights, named, turned)))
        return output, weights

    def remember(module, args, kwargs):
        given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        if given.get("position_embeddings") is not None:
            angles[module] = tuple(part[0].float().cpu() for part in given["position_embeddings"])

    turning = [module for module in model.modules() if turns_halves(module)]
    hooks = [m.register_forward_pre_hook(remember, with_kwargs=True) for m in turning]
    ALL_ATTENTION_FUNCTIONS["eager"] = eager
    try:
        yield calls
    finally:
        del ALL_ATTENTION_FUNCTIONS["eager"]
        for hook in hooks:
            hook.remove()


def turns_halves(module: "nn.Module") -> bool:
    """Whether it turns the pairs (i, i + half), as ours and Llama do; others turn neighbours.

    SmolLM3 has layers that turn nothing, and DeepSeek's turn the last sizes of a head.
    """
    import torch

    if not hasattr(module, "q_proj") or hasattr(module, "kv_lora_rank"):
        return False
    if not getattr(module, "use_rope", True):
        return False
    home = sys.modules.get(type(module).__module__)
    if hasattr(home, "eager_attention"):  # ours
        return True
    rotate_half = getattr(home, "rotate_half", None)
    return bool(rotate_half) and rotate_half(torch.arange(4)).tolist() == [-2, -3, 0, 1]


def eager_of(module: "nn.Module") -> Callable:
    for kind in type(module).__mro__:
        for name in NAMES:
            if found := getattr(sys.modules.get(kind.__module__), name, None):
                return found
    raise NoEager(type(module).__name__)


def read_scores(query, key, weights, named, turned) -> Scores | None:
    """None where the weights are not what these numbers give: the model does something more."""
    import torch

    dtype = query.dtype
    query, key, weights = (states[0].float().cpu() for states in (query, key, weights))
    heads = len(query)
    key = key.repeat_interleave(heads // len(key), dim=0)
    scale = named.get("scaling")
    hidden = hidden_by(named.get("attention_mask"), weights)
    scores = Scores(
        query,
        key,
        hidden,
        query.shape[-1] ** -0.5 if scale is None else float(scale),
        added_bias(named, hidden, len(weights)),
        named.get("softcap"),
        *turned,
    )
    sees = ~hidden.all(-1)  # others may be given any weights
    exact = max(1e-3, 2 * torch.finfo(dtype).eps)
    again, given = scores.weights(dtype)[:, sees], weights[:, sees]
    return scores if torch.allclose(again, given, rtol=exact, atol=1e-5) else None


def hidden_by(mask, weights) -> "torch.Tensor":
    """[rows, columns] of the first head: masks are the same for all."""
    import torch

    shape = weights.shape[1:]
    if not isinstance(mask, torch.Tensor):
        return torch.zeros(shape, dtype=torch.bool)
    mask = mask[0, 0, ..., : shape[1]].cpu()
    is_hidden = ~mask if mask.dtype == torch.bool else mask < torch.finfo(mask.dtype).min / 2
    return is_hidden.expand(shape)


def added_bias(named, hidden, heads) -> "torch.Tensor | None":
    """What is added to scores that are not hidden; masks that only hide add nothing."""
    import torch

    total = torch.zeros(())
    for name in ("position_bias", "attention_mask"):
        added = named.get(name)
        if isinstance(added, torch.Tensor) and added.is_floating_point():
            total = total + added[0].float().cpu()[..., : hidden.shape[-1]]
    total = total.expand(heads, *hidden.shape).masked_fill(hidden, 0.0)
    return total.contiguous() if total.any() else None
