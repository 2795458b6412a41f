"""All that is patched, in one table, and how to take it back.

class                    method                           does what it did, but
the stacks               run_layers                       without calling modules, if it may
the heads that write     _sample, _beam_search            by loops of our own, if they may
                         _prepare_cache_for_generation    remembers whose cache it is
"""

from collections.abc import Callable
from functools import wraps

from transformers.generation import GenerationMixin

from . import guards
from .beams import search_beams
from .decoding import decode
from .layers import ADDITIONS, add_post_norm, add_pre_norm
from .passes import run_next_tokens, run_whole_sequences

ORIGINALS: dict[tuple[type, str], Callable | None] = {}  # None: the class only inherits it


def decoder_patches(modeling) -> list[tuple[type, str, Callable]]:
    """(class, method, function) for the decoder-only family."""
    guards.trust(
        modeling.TformerDecoderLayer,
        modeling.TformerDecoderModel,
        modeling.TformerDecoderForCausalLM,
    )
    stack, head = modeling.TformerDecoderModel, modeling.TformerDecoderForCausalLM
    return [
        (stack, "run_layers", with_fast_path(run_decoder_only, stack.run_layers)),
        *head_patches(head),
    ]


def encoder_patches(modeling) -> list[tuple[type, str, Callable]]:
    """(class, method, function) for the encoder-only family."""
    guards.trust(modeling.TformerEncoderLayer)
    stack = modeling.TformerEncoderModel
    return [(stack, "run_layers", with_fast_path(run_encoder_only, stack.run_layers))]


def seq2seq_patches(modeling) -> list[tuple[type, str, Callable]]:
    """(class, method, function) for the encoder-decoder family."""
    from ..model import stacks_seq2seq as stacks

    ADDITIONS.update({stacks.pre_norm_cross: add_pre_norm, stacks.post_norm_cross: add_post_norm})
    encoder, decoder = modeling.TformerSeq2SeqEncoder, modeling.TformerSeq2SeqDecoder
    head = modeling.TformerSeq2SeqForConditionalGeneration
    guards.trust(encoder.layer_class, decoder.layer_class, decoder)
    guards.trust(modeling.TformerSeq2SeqModel, head)
    return [
        (encoder, "run_layers", with_fast_path(run_seq2seq_encoder, encoder.run_layers)),
        (decoder, "run_layers", with_fast_path(run_seq2seq_decoder, decoder.run_layers)),
        *head_patches(head),
    ]


def head_patches(head):
    return [
        (head, "_sample", with_own_loop(guards.may_decode, decode, "_sample")),
        (
            head,
            "_beam_search",
            with_own_loop(guards.may_search_beams, search_beams, "_beam_search"),
        ),
        (head, "_prepare_cache_for_generation", mark_given_cache),
    ]


def apply(patches) -> None:
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


def with_fast_path(quickly, plainly):
    """run_layers of a stack, which calls the modules where `quickly` returns None."""

    @wraps(plainly)
    def run_layers(stack, *tensors, **kwargs):
        last = None if guards.has_attention_options(kwargs) else quickly(stack, *tensors)
        return plainly(stack, *tensors, **kwargs) if last is None else last

    return run_layers


def run_decoder_only(stack, hidden_states, attention_mask, packed_ids, position_embeddings, cache):
    """Of the decoder-only family."""
    last = None
    if cache is not None and hidden_states.shape[1] == 1:
        last = run_next_tokens(stack, hidden_states, attention_mask, position_embeddings, cache)
    if last is None:
        tensors = hidden_states, attention_mask, packed_ids, position_embeddings
        last = run_whole_sequences(stack, *tensors, cache)
    return last


def run_encoder_only(stack, hidden_states, attention_mask, packed_ids, position_embeddings):
    """Of the encoder-only family."""
    return run_whole_sequences(
        stack, hidden_states, attention_mask, packed_ids, position_embeddings
    )


def run_seq2seq_encoder(stack, hidden_states, attention_mask, position_embeddings):
    """Of the encoder that a decoder has."""
    return run_whole_sequences(stack, hidden_states, attention_mask, None, position_embeddings)


def run_seq2seq_decoder(
    stack, hidden_states, encoder_states, attention_mask, source_mask, position_embeddings, caches
):
    """Of the decoder that has an encoder, once its keys and values are in the cache."""
    if caches is None or not caches.is_updated.get(0) or hidden_states.shape[1] > 1:
        return None
    own, source = caches.self_attention_cache, caches.cross_attention_cache
    return run_next_tokens(
        stack, hidden_states, attention_mask, position_embeddings, own, source, source_mask
    )


def with_own_loop(may, write, name):
    """transformers' decoding method of that name, or a loop of our own where that may be."""

    @wraps(getattr(GenerationMixin, name))
    def decode(
        model,
        input_ids,
        logits_processor,
        stopping_criteria,
        generation_config,
        synced_gpus=False,
        streamer=None,
        **model_kwargs,
    ):
        arguments = model, input_ids, logits_processor, stopping_criteria, generation_config
        options = {} if streamer is None else {"streamer": streamer}
        if synced_gpus or not may(model, generation_config, model_kwargs):
            theirs = getattr(GenerationMixin, name)
            return theirs(*arguments, synced_gpus=synced_gpus, **options, **model_kwargs)
        return write(*arguments, **options, **model_kwargs)

    return decode


def mark_given_cache(model, generation_config, model_kwargs, *args, **kwargs):
    """Marks a cache that was given, as later versions of transformers do: it is not ours."""
    given = model_kwargs.get("past_key_values")
    theirs = GenerationMixin._prepare_cache_for_generation
    theirs(model, generation_config, model_kwargs, *args, **kwargs)
    if given is not None:
        given._is_user_defined = True
