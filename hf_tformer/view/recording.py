"""Record what attention functions are called with: the numbers that weights are computed from.

A model looks up its attention function in a registry of transformers. While `recording`, the eager
function is called by one of ours, which keeps query, key, scale and biases.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

NAMES = ("eager_attention", "eager_attention_forward")  # in our models, in those of transformers


@dataclass(frozen=True)
class Scores:
    """The operands of a layer's weights: softmax(query · key · scale + bias) in each head, over the
    columns that are not hidden.

    query  [heads, rows, size]      after rotary positions
    key    [heads, columns, size]   after rotary positions
    hidden [rows, columns]          True where a row does not attend to a column
    bias   [heads, rows, columns]   attention bias, or None
    cap    the bound of scores, or None
    cos, sin  [tokens, rotated sizes]   of the rotary positions, or None
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
        """Compute the weights again, with the rounding of a model of that dtype."""
        query, key = self.query.to(dtype), self.key.to(dtype)
        scores = query @ key.transpose(-1, -2) * self.scale
        if self.cap is not None:
            scores = (scores / self.cap).tanh() * self.cap
        if self.bias is not None:
            scores = scores + self.bias.to(dtype)
        return scores.float().masked_fill(self.hidden, float("-inf")).softmax(-1)


class NoEager(Exception):  # noqa: N818 (a reason to record no scores, not a failure)
    """Raised for a model whose eager attention function has an unusual name."""


@contextmanager
def recording(
    model: "PreTrainedModel",
) -> "Iterator[list[tuple[torch.Tensor, Callable[[], Scores | None]]]]":
    """Yield a list that grows by each layer's weights and a function that returns its scores."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    calls: list = []
    angles: dict = {}  # module → (cos, sin)

    def eager(
        module: "nn.Module",
        query: "torch.Tensor",
        key: "torch.Tensor",
        value: "torch.Tensor",
        *args: Any,
        **kwargs: Any,
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        function = eager_of(module)
        given = inspect.signature(function).bind(module, query, key, value, *args, **kwargs)
        output, weights = function(*given.args, **given.kwargs)
        named = given.arguments | given.arguments.get("kwargs", {})
        rotation = angles.get(module, (None, None))
        calls.append((weights, lambda: read_scores(query, key, weights, named, rotation)))
        return output, weights

    def remember(module: "nn.Module", args: tuple, kwargs: dict) -> None:
        given = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        if given.get("position_embeddings") is not None:
            angles[module] = tuple(part[0].float().cpu() for part in given["position_embeddings"])

    rotating = [module for module in model.modules() if rotates_halves(module)]
    hooks = [m.register_forward_pre_hook(remember, with_kwargs=True) for m in rotating]
    ALL_ATTENTION_FUNCTIONS["eager"] = eager
    try:
        yield calls
    finally:
        del ALL_ATTENTION_FUNCTIONS["eager"]
        for hook in hooks:
            hook.remove()


def rotates_halves(module: "nn.Module") -> bool:
    """Return whether an attention module rotates the pairs (i, i + half), as ours and Llama's do.

    Others rotate neighbours; SmolLM3 has layers that rotate nothing, and DeepSeek's rotate the last
    sizes of a head.
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
    return rotate_half is not None and rotate_half(torch.arange(4)).tolist() == [-2, -3, 0, 1]


def eager_of(module: "nn.Module") -> Callable:
    for kind in type(module).__mro__:
        for name in NAMES:
            if found := getattr(sys.modules.get(kind.__module__), name, None):
                return found
    raise NoEager(type(module).__name__)


def read_scores(
    query: "torch.Tensor",
    key: "torch.Tensor",
    weights: "torch.Tensor",
    named: dict[str, Any],
    rotation: "tuple[torch.Tensor | None, torch.Tensor | None]",
) -> Scores | None:
    """Return the scores of a layer, or None if they do not give its weights: then the model
    computes something else."""
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
        *rotation,
    )
    sees = ~hidden.all(-1)  # the weights of other rows mean nothing
    exact = max(1e-3, 2 * torch.finfo(dtype).eps)
    again, given = scores.weights(dtype)[:, sees], weights[:, sees]
    return scores if torch.allclose(again, given, rtol=exact, atol=1e-5) else None


def hidden_by(mask: Any, weights: "torch.Tensor") -> "torch.Tensor":
    """Return [rows, columns]: what the mask of the first head hides, as all heads have the same."""
    import torch

    shape = weights.shape[1:]
    if not isinstance(mask, torch.Tensor):
        return torch.zeros(shape, dtype=torch.bool)
    mask = mask[0, 0, ..., : shape[1]].cpu()
    is_hidden = ~mask if mask.dtype == torch.bool else mask < torch.finfo(mask.dtype).min / 2
    return is_hidden.expand(shape)


def added_bias(named: dict[str, Any], hidden: "torch.Tensor", heads: int) -> "torch.Tensor | None":
    """Return what is added to scores that are not hidden, or None if a mask only hides."""
    import torch

    total = torch.zeros(())
    for name in ("position_bias", "attention_mask"):
        added = named.get(name)
        if isinstance(added, torch.Tensor) and added.is_floating_point():
            total = total + added[0].float().cpu()[..., : hidden.shape[-1]]
    total = total.expand(heads, *hidden.shape).masked_fill(hidden, 0.0)
    return total.contiguous() if total.any() else None
