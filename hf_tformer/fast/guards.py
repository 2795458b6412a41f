"""Whether a pass may be made without calling modules.

These guards and those of decoding loops (generation_guards.py) are the only place that asks. All of
them are pure functions. Whatever they do not recognise is answered with no, and then the modules
are called, or transformers decodes.
"""

from collections.abc import Callable, Iterable
from functools import partial
from operator import mul
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.output_capturing import _active_collector

from ..model.attention import SelfAttention, eager_attention
from ..model.cross_attention import SELF_ATTENTION_ONLY, CrossAttention
from ..model.layers import MLP, GatedMLP, Layer
from ..model.norms import NormOfAllHeads, OffsetNorm, RMSNorm, unchanged
from ..model.position_bias import LinearBias, NoBias, RelativeBias, RelativeBiasPerLayer
from ..model.positions import is_padding_mask
from .eight_bits import is_eight_bits
from .layers import ARRANGEMENTS, Mask, layers_of
from .rotations import is_known_rotation

SUBLAYERS = ("self_attn", "cross_attn", "mlp")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Modules whose parameters may be read instead of calling them, and their forward when this file was
# imported. Other modules, such as adapters that resemble one of these, are called.
FORWARDS: dict[type, Callable[..., Any]] = {
    kind: kind.forward
    for kind in (
        nn.Linear,
        nn.Embedding,
        nn.Dropout,
        nn.Identity,
        nn.LayerNorm,
        nn.ModuleList,
        RMSNorm,
        OffsetNorm,
        NormOfAllHeads,
        SelfAttention,
        CrossAttention,
        MLP,
        GatedMLP,
        NoBias,
        RelativeBias,
        RelativeBiasPerLayer,
        LinearBias,
    )
}


CONDITIONS: dict[type, Callable[[Any], bool]] = {}  # of some classes, on each of their modules


def trust(*kinds: type[nn.Module], only_if: Callable[[Any], bool] | None = None) -> None:
    """Add classes whose modules may be read instead of being called, all or under a condition."""
    FORWARDS.update((kind, kind.forward) for kind in kinds)
    if only_if is not None:
        CONDITIONS.update(dict.fromkeys(kinds, only_if))


# Passes


def may_skip_modules(model: PreTrainedModel, tensor: Tensor) -> bool:
    """Return whether a pass with such tensors can be made without modules, here and now."""
    return (
        not torch.compiler.is_compiling()  # first: nothing below may be traced
        and tensor.device.type == "cpu"
        and tensor.dtype in DTYPES
        and not (torch.is_grad_enabled() or model.training)
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and not _active_collector.get()  # nobody asked for what the modules return
        and not (_global_forward_hooks or _global_forward_pre_hooks)
        and backend_of(model) is usual_backend(model)
    )


def may_step(stack: PreTrainedModel, hidden_states: Tensor, cache: DynamicCache) -> bool:
    """Return whether a single-token step beside this cache can be made without modules."""
    return (
        may_skip_modules(stack, hidden_states)
        and is_growing_cache(cache)
        and bool(cache.layers)
        and is_supported_stack(stack)
        and matches_windows(stack, cache)
    )


def may_read_whole(
    stack: PreTrainedModel, hidden_states: Tensor, cache: DynamicCache | None
) -> bool:
    """Return whether whole sequences can pass without modules, behind what a cache may hold."""
    if not (may_skip_modules(stack, hidden_states) and is_supported_stack(stack)):
        return False
    if cache is None:
        return True
    is_empty = cache.get_seq_length() == 0
    return is_growing_cache(cache) and (is_empty or counts_no_distances(stack))


def backend_of(model: PreTrainedModel) -> Callable[..., Any]:
    """Return the function that computes attention for this model."""
    return ALL_ATTENTION_FUNCTIONS.get_interface(model.config._attn_implementation, eager_attention)


def usual_backend(model: PreTrainedModel) -> Callable[..., Any]:
    """Return the function whose place a pass takes: sdpa, or what can bound scores."""
    is_capped = getattr(model.config, "attn_logit_softcapping", None) is not None
    return eager_attention if is_capped else sdpa_attention_forward


def has_attention_options(options: dict[str, object]) -> bool:
    """Return whether the caller passes attention an argument that only a called backend can honour.

    `position_ids` alone add nothing to the mask and the rotation.
    """
    names = (name for name in SELF_ATTENTION_ONLY if name != "position_ids")
    return any(options.get(name) is not None for name in names)


# Modules


def is_unpatched(kind: type[nn.Module]) -> bool:
    """Return whether a class is supported and still has the forward that it was imported with."""
    return FORWARDS.get(kind) is kind.forward


def is_unmodified(module: nn.Module) -> bool:
    """Return whether a call runs the forward of the class, in inference, on its own parameters."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    runs_forward = "forward" not in vars(module) and module._compiled_call_impl is None
    tensors = [tensor for tensor in module._parameters.values() if tensor is not None]
    has_own_weights = all(is_supported_weight(module, t) and not t.is_inference() for t in tensors)
    is_hooked = any(map(is_foreign_hook, hooks))
    return runs_forward and has_own_weights and not (is_hooked or module.training)


def is_supported_weight(module: nn.Module, tensor: Tensor) -> bool:
    """Return whether a parameter is a plain one, or one in eight bits that we can multiply with."""
    return type(tensor) is nn.Parameter or (type(module) is nn.Linear and is_eight_bits(tensor))


def is_foreign_hook(hook: Callable[..., Any]) -> bool:
    """Return whether a hook is not transformers' own for output_attentions, which stays."""
    return getattr(hook, "__name__", "") != "output_capturing_hook"


def is_supported(module: nn.Module) -> bool:
    """Return whether the parameters of a module may be read instead of calling it."""
    condition = CONDITIONS.get(type(module))
    is_known = is_unpatched(type(module)) and is_unmodified(module)
    return is_known and (condition is None or condition(module))


def is_supported_stack(stack: PreTrainedModel) -> bool:
    """Return whether the layers, the final norm and the attention bias may be read."""
    others = (stack.norm, *stack.score_bias.modules())
    return all(map(is_supported, others)) and all(map(is_supported_layer, layers_of(stack)))


def has_no_bias(stack: PreTrainedModel) -> bool:
    """Return whether distances add nothing to the scores of attention."""
    return type(stack.score_bias) is NoBias


def is_supported_layer(layer: Layer) -> bool:
    """Return whether a layer and all of its parts may be read instead of being called."""
    if not is_supported(layer) or layer.run_sublayers not in ARRANGEMENTS:
        return False
    outputs = (getattr(layer, f"{name}_output", unchanged) for name in SUBLAYERS)
    if not all(isinstance(output, nn.Module) or is_known_output(output) for output in outputs):
        return False
    if not is_known_rotation(getattr(layer, "own_rotation", unchanged)):
        return False
    parts = (part for name, part in layer.named_modules() if name and not name.endswith(".act_fn"))
    return all(map(is_supported, parts)) and is_unmodified(layer.mlp.act_fn)


def is_known_output(output: object) -> bool:
    """Return whether what follows a branch is nothing, or a factor."""
    return output is unchanged or (type(output) is partial and output.func is mul)


class WeightSnapshot:
    """The parameters of some modules at one time, to find out later whether they have changed.

    `load_state_dict` and optimisers write into a parameter, which raises its version; other code
    replaces the parameter, its memory, or the module that has it.
    """

    def __init__(self, modules: Iterable[nn.Module]):
        modules = [inner for module in modules for inner in module.modules()]
        self.children = [
            (module._modules, name, child)
            for module in modules
            for name, child in module._modules.items()
        ]
        self.parameters = [
            (module._parameters, name, tensor, tensor._version, *memory_address(tensor))
            for module in modules
            for name, tensor in module._parameters.items()
            if tensor is not None
        ]

    def is_current(self) -> bool:
        """Return whether every parameter is the one that it was, with the values that it had."""
        if not all(children.get(name) is child for children, name, child in self.children):
            return False
        return all(
            parameters.get(name) is tensor and tensor._version == version and find() == address
            for parameters, name, tensor, version, find, address in self.parameters
        )


def memory_address(tensor: Tensor) -> tuple[Callable[[], int], int]:
    """Return a function that finds a tensor's address, and the address that it has now."""
    find = getattr(tensor, "qdata", tensor).data_ptr
    return find, find()


# Masks


def has_gaps(real: Tensor) -> bool:
    """Return whether a sequence [batch, length] has padding between tokens: distances grow."""
    starts = real.int().diff(prepend=real.new_zeros(len(real), 1).int()) > 0
    return bool((starts.sum(-1) > 1).any())


def real_tokens(
    stack: PreTrainedModel, attention_mask: Any, shape: torch.Size
) -> tuple[bool, Tensor | None]:
    """Return whether padding can be left out, and which tokens [batch, length] are no padding.

    The second is None where no token is padding. Padding cannot be left out where the mask is no
    padding mask, or where this would change distances that matter.
    """
    if attention_mask is None:
        return True, None
    if not is_padding_mask(attention_mask) or attention_mask.shape != shape:
        return False, None
    real = attention_mask.bool()
    if real.all():
        return True, None
    return (True, real) if counts_no_distances(stack) or not has_gaps(real) else (False, None)


def counts_no_distances(stack: PreTrainedModel) -> bool:
    """Return whether a token attends to all others alike, however far away they are."""
    windows = (layer.self_attn.sliding_window for layer in layers_of(stack))
    return has_no_bias(stack) and all(window is None for window in windows)


def shows_all(attention_mask: Any) -> bool:
    """Return whether a mask hides no key but later ones."""
    return attention_mask is None or (
        is_padding_mask(attention_mask) and bool(attention_mask.all())
    )


def visible_keys(attention_mask: Any, shape: tuple[int, int]) -> tuple[bool, Mask]:
    """Return whether a mask marks the keys of a single-token step, and it in sdpa's format.

    That is [batch, 1, 1, keys], or None where all keys are visible.
    """
    if attention_mask is None:
        return True, None
    if not is_padding_mask(attention_mask) or attention_mask.shape != shape:
        return False, None
    mask = attention_mask[:, None, None].bool()
    return True, None if mask.all() else mask


# Caches


def is_growing_cache(cache: Cache) -> bool:
    """Return whether a cache is transformers' own growing one, without offloading."""
    if type(cache) is not DynamicCache or cache.offloading:
        return False
    kinds = {type(layer) for layer in cache.layers} or {cache.layer_class_to_replicate}
    return kinds <= {DynamicLayer, DynamicSlidingWindowLayer}


def matches_windows(stack: PreTrainedModel, cache: DynamicCache) -> bool:
    """Return whether the cache drops exactly the tokens that slid out of the stack's windows."""
    slides = [layer.self_attn.sliding_window is not None for layer in layers_of(stack)]
    dropped = [type(layer) is DynamicSlidingWindowLayer for layer in cache.layers]
    return dropped[: len(slides)] == slides if dropped else not any(slides)
