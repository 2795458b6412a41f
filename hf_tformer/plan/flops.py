"""How many floating-point operations training takes.

A parameter of a linear layer multiplies once for each token, and takes part in one addition: 2
operations. The way back takes twice as many, for the gradients of the inputs and of the weights: 6
in all. Looking a token up in a table takes none, so tables do not count; the head does, tied or
not.

Attention multiplies each query by every key that it sees, and each weight by a value. For one token
that is 2 · heads · keys · (head size + value size) on the way forward, and three times as much with
the way back: 12 · layers · heads · head size · keys where the sizes are alike.

    FLOPs of a token = 6 · multiplying parameters + 12 · layers · heads · head size · keys seen

`keys seen` is a mean over the places of a row: all of them in an encoder, half of them in a
decoder, and a window cuts it short. Published utilisations often count all keys even where most
are hidden; `sees_all=True` counts so. Norms, activations and softmax are left out, as usual: they
are small, and no matrix unit computes them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel


def training_flops(config: "PreTrainedConfig", row_length: int, *, sees_all: bool = False) -> float:
    """Of one token in rows of that length, forward and backward.

    A token of an encoder-decoder is one of the target together with one of the source, whose rows
    are as long. A masked language model counts the head for every token, though training computes
    it for labelled ones only.
    """
    from .skeleton import skeleton_of

    if row_length < 1:
        raise ValueError(f"row_length is {row_length}: a row has at least one token")
    model = skeleton_of(config)
    scored = sum(
        heads * sizes * (row_length if sees_all else keys_seen(row_length, is_causal, window))
        for heads, sizes, is_causal, window in attentions(model)
    )
    return 6 * multiplying_parameters(model) + 6 * scored


def multiplying_parameters(model: "nn.Module") -> int:
    """The weights of linear layers; a head that is tied to a table is one of them."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    linear = (module for module in model.modules() if isinstance(module, (nn.Linear, Conv1D)))
    return sum(module.weight.numel() for module in linear)


def attentions(model: "PreTrainedModel") -> list[tuple[int, int, bool, int | None]]:
    """Of each attention: heads, sizes of a key and a value together, causality, window."""
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
    """How many tokens a layer sees, on each side and itself; None: all."""
    kinds = getattr(config, "layer_types", None)
    is_full = kinds and kinds[layer_idx] == "full_attention"
    return None if is_full else getattr(config, "sliding_window", None)


def keys_seen(row_length: int, is_causal: bool, window: int | None) -> float:
    """By a query, as a mean over the row."""
    reach = min(window or row_length, row_length)
    before = reach - reach * (reach - 1) / (2 * row_length)  # the first tokens see fewer
    return before if is_causal else 2 * before - 1
