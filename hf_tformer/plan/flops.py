"""Count the floating-point operations (FLOPs) of training.

For each token, a parameter of a linear layer takes one multiplication and one addition in the
forward pass: 2 operations. The backward pass takes twice as many, for the gradients of the inputs
and of the weights: 6 in all. An embedding lookup takes none, so embedding tables do not count. The
output head counts, tied or not.

Attention multiplies each query by every key that it attends to, and each attention weight by a
value. The forward pass of one token takes 2 · heads · keys · (head size + value size) operations,
the backward pass twice as many: 12 · layers · heads · head size · keys where both sizes are equal.

    FLOPs per token = 6 · linear parameters + 12 · layers · heads · head size · keys

`keys` is the mean over the positions of a sequence: all of them in an encoder, half of them in a
decoder, fewer under a sliding window. Published utilisations often count all keys, even where most
are masked; `sees_all=True` does the same. Norms, activations and softmax are omitted, as usual:
they are small, and no matrix unit computes them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel


def training_flops(config: "PreTrainedConfig", row_length: int, *, sees_all: bool = False) -> float:
    """Return the FLOPs per token of one forward and backward pass.

    `row_length` is the sequence length in tokens. For an encoder-decoder, a token is one target
    token together with one source token, with sources as long as targets. For a masked language
    model the head counts for every token, although training computes it for labelled ones only.
    """
    from .skeleton import skeleton_of

    if row_length < 1:
        raise ValueError(f"row_length is {row_length}: give at least 1 token")
    model = skeleton_of(config)
    attention = sum(
        heads * sizes * (row_length if sees_all else mean_keys(row_length, is_causal, window))
        for heads, sizes, is_causal, window in attentions(model)
    )
    return 6 * linear_parameters(model) + 6 * attention


def linear_parameters(model: "nn.Module") -> int:
    """Count the weights of all linear layers, including a head that is tied to the embeddings."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    linear = (module for module in model.modules() if isinstance(module, (nn.Linear, Conv1D)))
    return sum(module.weight.numel() for module in linear)


def attentions(model: "PreTrainedModel") -> list[tuple[int, int, bool, int | None]]:
    """List heads, key size plus value size, causality and window of each attention module."""
    config = model.config
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    sizes = head_dim + (getattr(config, "value_head_dim", None) or head_dim)
    modules = [module for module in model.modules() if hasattr(module, "k_proj")]
    if not modules:
        raise ValueError(
            f"{type(model).__name__} has no module with a k_proj, by which attention is found: "
            "give a model that names its projections q_proj, k_proj and v_proj"
        )
    return [
        (heads, sizes, getattr(module, "is_causal", True), window_of(config, module.layer_idx))
        for module in modules
    ]


def window_of(config: "PreTrainedConfig", layer_idx: int) -> int | None:
    """Return the sliding window of a layer, or None where it attends to all tokens."""
    kinds = getattr(config, "layer_types", None)
    is_full = kinds and kinds[layer_idx] == "full_attention"
    return None if is_full else getattr(config, "sliding_window", None)


def mean_keys(row_length: int, is_causal: bool, window: int | None) -> float:
    """Return how many keys a query attends to, as a mean over the positions of a sequence."""
    reach = min(window or row_length, row_length)
    before = reach - reach * (reach - 1) / (2 * row_length)  # the first tokens have fewer
    return before if is_causal else 2 * before - 1
