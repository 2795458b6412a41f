"""Whether decoding loops of our own may take the place of transformers', and in which way.

guards.py asks the same about a single pass.
"""

from collections.abc import Iterable
from typing import Any

from transformers import GenerationConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from ..model.norms import unchanged
from ..model.positions import LearnedPositions
from .caches import CACHE, self_attention_part
from .guards import (
    FORWARDS,
    is_growing_cache,
    is_supported,
    is_supported_stack,
    is_unmodified,
    is_unpatched,
    matches_windows,
    may_skip_modules,
)

# Inputs beside the token ids that our loops support; with any other, transformers decodes.
SUPPORTED_INPUTS = (
    "attention_mask",
    "decoder_attention_mask",
    "encoder_outputs",
    "inputs_embeds",
    "logits_to_keep",
    "position_ids",
    "use_cache",
    CACHE,
)
MOST_BEAMS = 16  # with more, keys of the other beams cost more than moving the past of each beam
# transformers' processors and criteria that judge each sequence by itself and keep no state. A
# repetition penalty is not among them: it may hold the length of each prompt by its place.
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


def may_decode(
    model: PreTrainedModel, generation_config: GenerationConfig, model_kwargs: dict[str, Any]
) -> bool:
    """Return whether a decoding step depends on the model's weights and a growing cache alone."""
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


def may_continue(stack: PreTrainedModel, model_kwargs: dict[str, Any]) -> bool:
    """Return whether the cache is a growing one, and no prompt of a decoder ends in padding."""
    cache = model_kwargs.get(CACHE)
    is_pair = isinstance(cache, EncoderDecoderCache)
    mask = model_kwargs.get("decoder_attention_mask" if is_pair else "attention_mask")
    ends_in_token = mask is None or bool(mask[:, -1].all())
    own = self_attention_part(cache)
    return ends_in_token and is_growing_cache(own) and matches_windows(stack, own)


def is_supported_model(model: PreTrainedModel) -> bool:
    """Return whether a step may read, or would call, only modules as they were built."""
    stack = model.get_decoder()
    if not has_own_methods(model):
        return False
    if not all(map(is_supported, (model.base_model, stack, model.lm_head))):
        return False
    read = (stack.embed_tokens, stack.embed_norm)
    called = (model, stack.positions, stack.rotary_emb)
    drops_nothing = stack.dropout is unchanged or is_supported(stack.dropout)
    is_readable = drops_nothing and all(map(is_supported, read))
    return is_readable and all(map(is_unmodified, called)) and is_supported_stack(stack)


def has_own_methods(model: PreTrainedModel) -> bool:
    """Return whether no subclass, wrapper or adapter replaces a method that a step would call."""
    ours = next(kind for kind in type(model).__mro__ if kind in FORWARDS)
    methods = (
        "forward",
        "prepare_inputs_for_generation",
        "_prefill",
        "_update_model_kwargs_for_generation",
    )
    return is_unpatched(ours) and all(
        getattr(getattr(model, name), "__func__", None) is getattr(ours, name) for name in methods
    )


def may_search_beams(
    model: PreTrainedModel, generation_config: GenerationConfig, model_kwargs: dict[str, Any]
) -> bool:
    """Return whether beams can lie side by side in a cache that nobody else will read."""
    cache = model_kwargs.get(CACHE)
    return (
        generation_config.num_beams <= MOST_BEAMS
        and not generation_config.do_sample
        and not generation_config.low_memory  # refused by transformers
        and not is_user_defined(cache)
        and may_decode(model, generation_config, model_kwargs)
    )


def is_user_defined(cache: DynamicCache | EncoderDecoderCache | None) -> bool:
    """Return whether the caller of generate() gave this cache, and may read it afterwards."""
    return getattr(cache, "_is_user_defined", False)


def may_drop_sequences(
    model: PreTrainedModel, processors: Iterable[object], criteria: Iterable[object]
) -> bool:
    """Return whether no sequence depends on the others in the batch, or on its place among them."""
    are_per_sequence = all(is_per_sequence(type(judge)) for judge in (*processors, *criteria))
    return are_per_sequence and not rotates_by_length(model.get_decoder())


def is_per_sequence(kind: type) -> bool:
    """Return whether a class is one of transformers' own that judge each sequence by itself."""
    return kind.__module__.startswith("transformers.generation.") and kind.__name__ in PER_SEQUENCE


def rotates_by_length(stack: PreTrainedModel) -> bool:
    """Return whether the longest sequence of a batch decides how the heads of all are rotated."""
    rope_types = (getattr(rotary, "rope_type", "") for rotary in stack.rotary_emb.modules())
    return any("dynamic" in rope_type or rope_type == "longrope" for rope_type in rope_types)


def can_prepare_positions(stack: PreTrainedModel) -> bool:
    """Return whether positions can be prepared that the sequence may never reach."""
    return not rotates_by_length(stack) and not isinstance(stack.positions, LearnedPositions)
