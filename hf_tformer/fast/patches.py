"""The table of patched methods, and how to restore them.

class                    method                           does what it did, but
stacks                   run_layers                       without calling modules, where allowed
heads that generate      _sample, _beam_search            by loops of our own, where allowed
                         _prepare_cache_for_generation    marks a cache that the caller gave
"""

from collections.abc import Callable, Iterable
from functools import wraps
from types import ModuleType
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation import (
    BaseStreamer,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from .beams import search_beams
from .caches import CACHE
from .decoding import decode
from .generation_guards import may_decode, may_search_beams
from .guards import has_attention_options, trust
from .layers import (
    ARRANGEMENTS,
    norms_after,
    norms_before,
    side_by_side,
    side_by_side_with_one_norm,
)
from .passes import run_next_tokens, run_whole_sequences
from .rotations import PositionEmbeddings

Function = Callable[..., Any]
Patch = tuple[type, str, Function]  # class, method, function
ORIGINALS: dict[tuple[type, str], Function | None] = {}  # None: the class only inherits it


def decoder_patches(modeling: ModuleType) -> list[Patch]:
    """Return the patches of the decoder-only family."""
    ARRANGEMENTS[modeling.parallel] = side_by_side
    ARRANGEMENTS[modeling.parallel_shared] = side_by_side_with_one_norm
    stack, head = modeling.TformerDecoderModel, modeling.TformerDecoderForCausalLM
    trust(modeling.TformerDecoderLayer, stack, head)
    return [(stack, "run_layers", with_fast_path(run_decoder, stack)), *head_patches(head)]


def mixture_patches(modeling: ModuleType) -> list[Patch]:
    """Return the patches of the mixture of experts."""
    from .experts import trust_mixtures  # imported where a mixture is used

    trust_mixtures()
    trust(modeling.TformerMixtureLayer, modeling.TformerMixtureModel)
    trust(modeling.TformerMixtureForCausalLM)
    return []  # its methods are those of the decoder-only family


def encoder_patches(modeling: ModuleType) -> list[Patch]:
    """Return the patches of the encoder-only family."""
    trust(modeling.TformerEncoderLayer)
    stack = modeling.TformerEncoderModel
    return [(stack, "run_layers", with_fast_path(run_encoder, stack))]


def seq2seq_patches(modeling: ModuleType) -> list[Patch]:
    """Return the patches of the encoder-decoder family."""
    from ..model import stacks_seq2seq as stacks

    ARRANGEMENTS[stacks.pre_norm_cross] = norms_before
    ARRANGEMENTS[stacks.post_norm_cross] = norms_after
    encoder, decoder = modeling.TformerSeq2SeqEncoder, modeling.TformerSeq2SeqDecoder
    head = modeling.TformerSeq2SeqForConditionalGeneration
    trust(encoder.layer_class, decoder.layer_class, decoder, modeling.TformerSeq2SeqModel, head)
    return [
        (encoder, "run_layers", with_fast_path(run_seq2seq_encoder, encoder)),
        (decoder, "run_layers", with_fast_path(run_seq2seq_decoder, decoder)),
        *head_patches(head),
    ]


def head_patches(head: type) -> list[Patch]:
    """Return the patches of a head that generates."""
    return [
        (head, "_sample", with_own_loop("_sample", may_decode, decode)),
        (head, "_beam_search", with_own_loop("_beam_search", may_search_beams, search_beams)),
        (head, "_prepare_cache_for_generation", mark_given_cache),
    ]


def apply(patches: Iterable[Patch]) -> None:
    """Replace methods that are not replaced yet, and remember the originals."""
    for owner, name, function in patches:
        if (owner, name) not in ORIGINALS:
            ORIGINALS[owner, name] = vars(owner).get(name)
            setattr(owner, name, function)


def restore() -> None:
    while ORIGINALS:
        (owner, name), original = ORIGINALS.popitem()
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def with_fast_path(fast_path: Function, stack_class: type[PreTrainedModel]) -> Function:
    """Return run_layers of a stack, which calls the modules where `fast_path` returns None."""
    call_modules = stack_class.run_layers

    @wraps(call_modules)
    def run_layers(stack: PreTrainedModel, *tensors: Any, **kwargs: Any) -> Tensor:
        last = None if has_attention_options(kwargs) else fast_path(stack, *tensors)
        return call_modules(stack, *tensors, **kwargs) if last is None else last

    return run_layers


def run_decoder(
    stack: PreTrainedModel,
    hidden_states: Tensor,
    attention_mask: Any,
    packed_ids: Tensor | None,
    position_embeddings: PositionEmbeddings | None,
    cache: DynamicCache | None,
) -> Tensor | None:
    """Run the layers of the decoder-only family."""
    if cache is not None and hidden_states.shape[1] == 1:
        last = run_next_tokens(stack, hidden_states, attention_mask, position_embeddings, cache)
        if last is not None:
            return last
    tensors = hidden_states, attention_mask, packed_ids, position_embeddings
    return run_whole_sequences(stack, *tensors, cache)


def run_encoder(stack: PreTrainedModel, *tensors: Any) -> Tensor | None:
    """Run the layers of the encoder-only family."""
    return run_whole_sequences(stack, *tensors)


def run_seq2seq_encoder(
    stack: PreTrainedModel, hidden_states: Tensor, attention_mask: Any, position_embeddings: Any
) -> Tensor | None:
    """Run the layers of an encoder that has a decoder."""
    return run_whole_sequences(stack, hidden_states, attention_mask, None, position_embeddings)


def run_seq2seq_decoder(
    stack: PreTrainedModel,
    hidden_states: Tensor,
    encoder_states: Tensor,
    attention_mask: Any,
    source_mask: Tensor | None,
    position_embeddings: PositionEmbeddings | None,
    caches: EncoderDecoderCache | None,
) -> Tensor | None:
    """Run the layers of a decoder that has an encoder, once the source is in the cache."""
    if caches is None or not caches.is_updated.get(0) or hidden_states.shape[1] > 1:
        return None
    own, source = caches.self_attention_cache, caches.cross_attention_cache
    return run_next_tokens(
        stack, hidden_states, attention_mask, position_embeddings, own, source, source_mask
    )


def with_own_loop(name: str, is_allowed: Function, loop: Function) -> Function:
    """Return transformers' decoding method of that name, with our loop where it is allowed."""

    @wraps(getattr(GenerationMixin, name))
    def generate(
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: BaseStreamer | None = None,
        **model_kwargs: Any,
    ) -> Any:
        arguments = model, input_ids, logits_processor, stopping_criteria, generation_config
        options = {} if streamer is None else {"streamer": streamer}
        if synced_gpus or not is_allowed(model, generation_config, model_kwargs):
            original = getattr(GenerationMixin, name)
            return original(*arguments, synced_gpus=synced_gpus, **options, **model_kwargs)
        return loop(*arguments, **options, **model_kwargs)

    return generate


def mark_given_cache(
    model: PreTrainedModel,
    generation_config: GenerationConfig,
    model_kwargs: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> None:
    """Prepare the cache, and mark one that was given as later versions of transformers do."""
    given = model_kwargs.get(CACHE)
    original = GenerationMixin._prepare_cache_for_generation
    original(model, generation_config, model_kwargs, *args, **kwargs)
    if given is not None:
        given._is_user_defined = True
