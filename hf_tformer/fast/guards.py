"""Whether a fast path may be taken: every question, and nothing else.

All functions here are pure: they look and answer. Whatever they do not know is answered with no,
and then transformers' and the modules' own way is taken.
"""

from functools import partial

import torch
from torch import nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.output_capturing import _active_collector

from ..model.attention import SelfAttention, eager_attention
from ..model.attention_bias import LinearBias, NoBias, RelativeBias, RelativeBiasPerLayer
from ..model.cross_attention import SELF_ATTENTION_ONLY, CrossAttention
from ..model.layers import MLP, GatedMLP
from ..model.norms import RMSNorm, unchanged
from ..model.positions import LearnedPositions, is_padding_mask
from .caches import own_part
from .eight_bits import is_eight_bits
from .layers import ADDITIONS, layers_of

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# What may be read here instead of being called, and what calling it did when this was loaded.
# Beside anything else, be it an adapter that looks like one of these, the modules are called.
FORWARDS = {
    kind: kind.forward
    for kind in (
        nn.Linear,
        nn.Embedding,
        nn.Dropout,
        nn.Identity,
        nn.LayerNorm,
        nn.ModuleList,
        RMSNorm,
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
# What a model may be given beside its tokens; with anything else, transformers takes the steps.
SUPPORTED_INPUTS = (
    "attention_mask",
    "decoder_attention_mask",
    "encoder_outputs",
    "inputs_embeds",
    "logits_to_keep",
    "past_key_values",
    "position_ids",
    "use_cache",
)
MOST_BEAMS = 16  # with more, to see what the others wrote costs more than to move it
# transformers' processors and criteria that judge a text by itself and remember nothing of it.
# Not RepetitionPenaltyLogitsProcessor: it may hold the length of each prompt, by its place.
PER_SEQUENCE = (
    "EosTokenCriteria",
    "EpsilonLogitsWarper",
    "EtaLogitsWarper",
    "ExponentialDecayLengthPenalty",
    "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "InfNanRemoveLogitsProcessor",
    "LogitNormalization",
    "MaxLengthCriteria",
    "MaxTimeCriteria",
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "MinPLogitsWarper",
    "NoBadWordsLogitsProcessor",
    "NoRepeatNGramLogitsProcessor",
    "SequenceBiasLogitsProcessor",
    "StopStringCriteria",
    "SuppressTokensAtBeginLogitsProcessor",
    "SuppressTokensLogitsProcessor",
    "TemperatureLogitsWarper",
    "TopKLogitsWarper",
    "TopPLogitsWarper",
    "TypicalLogitsWarper",
)


def trust(*kinds: type) -> None:
    """From now on these may be read, too, as they stand."""
    FORWARDS.update((kind, kind.forward) for kind in kinds)


# The moment, the device, the backend


def may_skip_modules(model, tensor) -> bool:
    """Whether a pass with such tensors can be made without modules, here and now."""
    return (
        not torch.compiler.is_compiling()  # first: nothing below may be traced
        and tensor.device.type == "cpu"
        and tensor.dtype in DTYPES
        and not (torch.is_grad_enabled() or model.training)
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and not _active_collector.get()  # nobody wants to see what the modules return
        and not (_global_forward_hooks or _global_forward_pre_hooks)
        and backend_of(model) is sdpa_attention_forward
    )


def backend_of(model):
    return ALL_ATTENTION_FUNCTIONS.get_interface(model.config._attn_implementation, eager_attention)


def has_attention_options(options: dict) -> bool:
    """Whether the caller tells attention what only a backend that is called could heed.

    `position_ids` alone say nothing more than the mask and the rotation do.
    """
    names = (name for name in SELF_ATTENTION_ONLY if name != "position_ids")
    return any(options.get(name) is not None for name in names)


# Modules


def is_unpatched(kind: type) -> bool:
    """Whether a class is known, and calling it still does what it did then."""
    return FORWARDS.get(kind) is kind.forward


def is_unmodified(module: nn.Module) -> bool:
    """Whether calling it is its class's own forward, as in inference, on its own parameters."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    is_called_plainly = "forward" not in vars(module) and module._compiled_call_impl is None
    tensors = [tensor for tensor in module._parameters.values() if tensor is not None]
    holds_its_weights = all(
        is_supported_weight(module, t) and not t.is_inference() for t in tensors
    )
    is_watched = any(map(is_foreign_hook, hooks))
    return is_called_plainly and holds_its_weights and not (is_watched or module.training)


def is_supported_weight(module, tensor) -> bool:
    return type(tensor) is nn.Parameter or (type(module) is nn.Linear and is_eight_bits(tensor))


def is_foreign_hook(hook) -> bool:
    """The hooks by which transformers shows attention stay for ever after the first look."""
    return getattr(hook, "__name__", "") != "output_capturing_hook"


def is_supported(module: nn.Module) -> bool:
    return is_unpatched(type(module)) and is_unmodified(module)


def is_supported_stack(stack) -> bool:
    """Whether the layers, and what stands beside them, are what they were made to be."""
    beside = (stack.norm, *stack.score_bias.modules())
    return all(map(is_supported, beside)) and all(map(is_supported_layer, layers_of(stack)))


def has_no_bias(stack) -> bool:
    """Whether distances leave the scores of attention as they are."""
    return type(stack.score_bias) is NoBias


def is_supported_layer(layer) -> bool:
    if not is_supported(layer) or layer.arrange not in ADDITIONS or layer.self_attn.cap:
        return False
    outputs = ("self_attn_output", "cross_attn_output", "mlp_output")  # norms behind a branch
    if any(getattr(layer, name, unchanged) is not unchanged for name in outputs):
        return False
    rotation = getattr(layer, "own_rotation", unchanged)
    if rotation is not unchanged and type(rotation) is not partial:
        return False
    parts = (part for name, part in layer.named_modules() if name and not name.endswith(".act_fn"))
    return all(map(is_supported, parts)) and is_unmodified(layer.mlp.act_fn)


class Weights:
    """The parameters of some modules at one moment; what was derived of them holds while they do.

    `load_state_dict` and optimisers write into a parameter, which counts its version up; others
    replace it, the memory that it names, or the module that it is of.
    """

    def __init__(self, modules):
        modules = [inner for module in modules for inner in module.modules()]
        self.parts = [
            (module._modules, name, part)
            for module in modules
            for name, part in module._modules.items()
        ]
        self.seen = [
            (module._parameters, name, tensor, tensor._version, *memory_address(tensor))
            for module in modules
            for name, tensor in module._parameters.items()
            if tensor is not None
        ]

    def are_unchanged(self) -> bool:
        if not all(parts.get(name) is part for parts, name, part in self.parts):
            return False
        return all(
            parameters.get(name) is tensor and tensor._version == version and ask_where() == address
            for parameters, name, tensor, version, ask_where, address in self.seen
        )


def memory_address(tensor) -> tuple:
    """A function that asks for the address, and what it says now."""
    ask = getattr(tensor, "qdata", tensor).data_ptr
    return ask, ask()


# Masks


def seen_by_place(attention, length):
    """[query, key] by their places alone; None if a token sees all others."""
    window = attention.sliding_window
    if window is None and not attention.is_causal:
        return None
    seen = torch.ones(length, length, dtype=torch.bool)
    seen = seen.tril(0 if attention.is_causal else window - 1)
    return seen if window is None else seen.triu(1 - window)


def has_gaps(real) -> bool:
    """Whether in some text [batch, length] padding stands between tokens: it widens distances."""
    begins = real.int().diff(prepend=real.new_zeros(len(real), 1).int()) > 0
    return bool((begins.sum(-1) > 1).any())


def real_tokens(stack, attention_mask, shape):
    """Which tokens [batch, length] are no padding: (True, None) if none is.

    (False, None) where the mask is finished, or padding would change distances that count.
    """
    if attention_mask is None:
        return True, None
    if not is_padding_mask(attention_mask) or attention_mask.shape != shape:
        return False, None
    padding_mask = attention_mask
    real = padding_mask.bool()
    if real.all():
        return True, None
    counts_distances = not has_no_bias(stack) or any(
        layer.self_attn.sliding_window is not None for layer in layers_of(stack)
    )
    return (False, None) if counts_distances and has_gaps(real) else (True, real)


def visible_keys(attention_mask, shape):
    """The keys that a single-token step attends to, as sdpa takes it: [batch, 1, 1, keys].

    (True, None) where all are visible; (False, None) where the mask does not mark these keys.
    """
    if attention_mask is None:
        return True, None
    if not is_padding_mask(attention_mask) or attention_mask.shape != shape:
        return False, None
    mask = attention_mask[:, None, None].bool()
    return True, None if mask.all() else mask


# Caches


def is_growing_cache(cache) -> bool:
    """Whether a cache is transformers' own growing one, and nothing is done to it on the way."""
    if type(cache) is not DynamicCache or cache.offloading:
        return False
    kinds = {type(layer) for layer in cache.layers} or {cache.layer_class_to_replicate}
    return kinds <= {DynamicLayer, DynamicSlidingWindowLayer}


def keeps_all_tokens(cache) -> bool:
    """Whether no layer of the cache drops what slid out of its window."""
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def matches_windows(stack, cache) -> bool:
    """Whether the cache drops what slides out of the windows of the stack, and nothing else."""
    slides = [layer.self_attn.sliding_window is not None for layer in layers_of(stack)]
    kept = [type(layer) is DynamicSlidingWindowLayer for layer in cache.layers]
    return kept[: len(slides)] == slides if kept else not any(slides)


def has_one_rotation(stack) -> bool:
    """Whether all layers rotate by the same angles."""
    layers = layers_of(stack)
    return all(getattr(layer, "own_rotation", unchanged) is unchanged for layer in layers)


def is_user_defined(cache) -> bool:
    return getattr(cache, "_is_user_defined", False)


# Whole texts


def may_decode(model, generation_config, model_kwargs: dict) -> bool:
    """Whether a step is the model's weights, a growing cache, and nothing else."""
    given = {name for name, value in model_kwargs.items() if value is not None}
    return bool(
        model_kwargs.get("use_cache")
        and not generation_config.return_dict_in_generate
        and not generation_config.is_assistant
        and given.issubset(SUPPORTED_INPUTS)
        and is_supported_model(model)
        and may_skip_modules(model, model.lm_head.weight)
        and may_continue(model.get_decoder(), model_kwargs)
    )


def may_continue(stack, model_kwargs: dict) -> bool:
    """Whether the cache grows plainly, and no prompt of a decoder ends in padding."""
    cache = model_kwargs.get("past_key_values")
    mask = model_kwargs.get(
        "decoder_attention_mask" if isinstance(cache, EncoderDecoderCache) else "attention_mask"
    )
    ends_in_token = mask is None or bool(mask[:, -1].all())
    return (
        ends_in_token
        and is_growing_cache(own_part(cache))
        and matches_windows(stack, own_part(cache))
    )


def is_supported_model(model) -> bool:
    """Whether all that a step reads, or would call, is what it was made to be."""
    stack = model.get_decoder()
    if not has_own_methods(model):
        return False
    if not all(map(is_supported, (model.base_model, stack, model.lm_head))):
        return False
    if getattr(model, "cap", unchanged) is not unchanged:
        return False
    read = (stack.embed_tokens, stack.embed_norm)
    called = (model, stack.positions, stack.rotary_emb)
    drops_nothing = stack.dropout is unchanged or is_supported(stack.dropout)
    is_read = drops_nothing and has_one_rotation(stack) and all(map(is_supported, read))
    return is_read and all(map(is_unmodified, called)) and is_supported_stack(stack)


def has_own_methods(model) -> bool:
    """Whether no subclass, wrapper or adapter has put another function in the way of a step."""
    ours = next((kind for kind in type(model).__mro__ if kind in FORWARDS), None)
    steps = (
        "forward",
        "prepare_inputs_for_generation",
        "_prefill",
        "_update_model_kwargs_for_generation",
    )
    return is_unpatched(ours) and all(
        getattr(getattr(model, step), "__func__", None) is getattr(ours, step) for step in steps
    )


def may_search_beams(model, generation_config, model_kwargs: dict) -> bool:
    """Whether beams can be written side by side in a cache that nobody else will read."""
    cache = model_kwargs.get("past_key_values")
    return (
        generation_config.num_beams <= MOST_BEAMS
        and not generation_config.do_sample
        and not generation_config.low_memory  # refused by transformers
        and not is_user_defined(cache)
        and may_decode(model, generation_config, model_kwargs)
        and keeps_all_tokens(own_part(cache))
    )


def may_drop_sequences(model, processors, criteria) -> bool:
    """Whether no text depends on which others stand beside it, or on its place among them."""
    are_by_text = all(is_per_sequence(type(judge)) for judge in (*processors, *criteria))
    return are_by_text and not rotates_by_length(model.get_decoder())


def is_per_sequence(kind: type) -> bool:
    is_theirs = kind.__module__.startswith("transformers.generation.")
    return is_theirs and kind.__name__ in PER_SEQUENCE


def rotates_by_length(stack) -> bool:
    """Whether the longest text of a batch decides how the heads of all are rotated."""
    rope_type = getattr(stack.rotary_emb, "rope_type", "default")
    return "dynamic" in rope_type or rope_type == "longrope"


def can_prepare_positions(stack) -> bool:
    """Whether positions can be prepared that the text may never reach."""
    return not rotates_by_length(stack) and not isinstance(stack.positions, LearnedPositions)
