"""Decoding steps without calling modules: what stays the same is prepared once."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from ..model.norms import unchanged
from ..model.positions import count_positions
from . import biases, settings
from .caches import CACHE, self_attention_part
from .compiled import StepFunction, compiled_functions
from .generation_guards import can_prepare_positions
from .guards import WeightSnapshot
from .layers import Mask, layers_of, norm_function, source_keys_and_values, stack_functions
from .passes import NextBeamTokens, NextTokens
from .products import linear_function
from .rotations import rotations_by_key, rotations_of, tables_of
from .threads import Pace, pace_of, run_paced

STEPS_AHEAD = 16  # steps whose positions are prepared at once
NUMBERS_AHEAD = 2**22  # numbers at most in the rotations of these steps


class DecodingStep:
    """A function of the tokens chosen last, [sequences], that returns the next logits.

    It starts behind what the cache holds. In a beam search each beam is a sequence here.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        cache: DynamicCache | EncoderDecoderCache,
        model_kwargs: dict[str, Any],
        sequences: int,
        beams: int = 1,
    ):
        self.model, self.stack = model, model.get_decoder()
        stack = self.stack
        self.embedding_weight, self.scale = stack.embed_tokens.weight, stack.embedding_scale

        mask, source_mask = model_kwargs.get("attention_mask"), None
        if isinstance(cache, EncoderDecoderCache):
            mask, source_mask = model_kwargs.get("decoder_attention_mask"), mask
        own, source = self_attention_part(cache), getattr(cache, "cross_attention_cache", None)
        self.length = own.get_seq_length()  # of the sequences so far
        masks = self.additive_mask(mask), source, self.additive_mask(source_mask)
        self.context = NextTokens(sequences, own, *masks)
        if beams > 1:
            self.context = NextBeamTokens(sequences, beams, own, *masks)

        last = model_kwargs.get("position_ids") if source is None else None
        if last is None:
            counted = mask if self.length > 0 else None  # without a prompt the last position is -1
            last = count_positions(counted, 1, self.length - 1, self.embedding_weight.device)
        last = last[:, -1:]
        self.last = last[:1] if (last == last[0]).all() else last.repeat_interleave(beams, 0)
        most = NUMBERS_AHEAD // (len(self.last) * stack.config.head_dim**2)
        self.ahead = max(min(STEPS_AHEAD, most), 1) if can_prepare_positions(stack) else 1
        self.index = 0  # of the next step among those whose positions are prepared
        self.offsets: Sequence[Tensor] = ()  # what each of these adds to its embeddings
        self.weights: WeightSnapshot | None = None
        self.functions: dict[int, list[StepFunction]] = {}  # by number of threads
        self.pace: Pace | None = None

    def additive_mask(self, padding_mask: Tensor | None) -> Mask:
        """Convert a padding mask to [batch, 1, 1, key]; None if nothing is hidden."""
        if padding_mask is None or padding_mask.all():
            return None
        hidden = padding_mask[:, None, None] == 0
        return self.embedding_weight.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)

    def prepare(self) -> None:
        """Make what depends on the weights and on the number of sequences."""
        sequences = self.context.sequences
        self.weights = WeightSnapshot((self.stack, self.model.lm_head))
        self.embed_norm = norm_function(self.stack.embed_norm)
        self.offsets = self.offsets[: self.index]  # those prepared are of earlier weights, too
        self.functions, compiled = {}, None
        if settings.is_compiled and sequences == 1:
            compiled = compiled_functions(self.model, self.last + self.index + 1)
        self.is_compiled = compiled is not None
        self.pace = pace_of(self.stack, sequences, self.is_compiled)
        if compiled is not None:  # for this number of threads; steps with fewer are not compiled
            self.functions[torch.get_num_threads()] = compiled

    def functions_now(self) -> list[StepFunction]:
        """Return the functions of a step with the number of threads that torch has now."""
        threads = torch.get_num_threads()
        if threads not in self.functions:
            self.functions[threads] = self.eager_functions()
        return self.functions[threads]

    def eager_functions(self) -> list[StepFunction]:
        """Return the layers, the final norm and the head as functions."""
        sequences, scale = self.context.sequences, self.model.logit_scale
        head = linear_function(self.model.lm_head, sequences)
        functions = stack_functions(self.stack, sequences)
        softcap = getattr(self.model, "softcap", unchanged)
        return [*functions, lambda hidden_states, context: softcap(head(hidden_states * scale))]

    def prepare_positions(self) -> None:
        """Make what the next few steps add to embeddings and scores, and rotate their heads by."""
        self.last, self.length = self.last + self.index, self.length + self.index
        position_ids = self.last + torch.arange(1, self.ahead + 1, device=self.last.device)
        hidden_size = self.embedding_weight.shape[1]
        blank = self.embedding_weight.new_zeros(1, self.ahead, hidden_size)
        self.offsets = self.stack.positions(blank, position_ids).unbind(1)
        sizes = {"sequences": self.context.sequences, "head_dim": self.stack.config.head_dim}
        rotate = tables_of if self.is_compiled else partial(rotations_of, **sizes)
        position_embeddings = self.stack.rotary_emb(blank, position_ids)
        self.rotations = rotations_by_key(position_embeddings, rotate, self.ahead)
        self.bias = biases.of_next_token(self.stack, self.length + self.ahead, blank.dtype)
        self.index = 0

    def bias_of_step(self) -> Tensor | None:
        """Return the attention bias of this step: the end of that of the last prepared step."""
        return None if self.bias is None else self.bias[..., self.ahead - 1 - self.index :]

    def keep(self, indices: Tensor) -> None:
        """Go on with these sequences, fewer than there were."""
        self.context.keep(indices)
        if len(self.last) > 1:
            self.last = self.last[indices]
        self.weights = None  # what is prepared was for another number of sequences

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return the logits [sequences, vocab] that follow these tokens."""
        if self.weights is None or not self.weights.is_current():
            self.prepare()
        if self.index == len(self.offsets):
            self.prepare_positions()
        return run_paced(self.pace, self.functions_now, partial(self.take, tokens))

    def take(self, tokens: Tensor, functions: list[StepFunction]) -> Tensor:
        """Take a step by functions that are prepared."""
        context, index = self.context, self.index
        context.begin_step(self.rotations[index], self.bias_of_step())
        embedded = nn.functional.embedding(tokens, self.stack.embed_tokens.weight)
        hidden_states = torch.add(self.offsets[index], embedded, alpha=self.scale)
        hidden_states = self.embed_norm(hidden_states)
        if context.sequences == 1:
            hidden_states = hidden_states[0]
        for function in functions:
            hidden_states = function(hidden_states, context)
        self.index += 1
        return hidden_states.contiguous().view(context.sequences, -1)


def pays_to_drop(remaining: int, sequences: int) -> bool:
    """Return whether to drop finished sequences, once a quarter is, by copying the others' past."""
    return 4 * remaining <= 3 * sequences


def prefill(
    model: PreTrainedModel,
    input_ids: Tensor,
    generation_config: GenerationConfig,
    model_kwargs: dict[str, Any],
    beams: int = 1,
) -> tuple[DecodingStep, Tensor]:
    """Read the prompt; return the step that follows, and the logits of the last token."""
    fill_source_cache(model, model_kwargs)
    cache, sequences = model_kwargs[CACHE], len(input_ids)
    if beams == 1 and starts_with_one_token(input_ids, cache):
        step = DecodingStep(model, cache, model_kwargs, sequences)
        return step, step(input_ids[:, 0])
    outputs = model._prefill(input_ids, generation_config, model_kwargs)
    step = DecodingStep(model, getattr(outputs, CACHE), model_kwargs, sequences, beams)
    return step, outputs.logits[:, -1].clone()  # the other logits, if there are any, are released


def starts_with_one_token(input_ids: Tensor, cache: DynamicCache | EncoderDecoderCache) -> bool:
    """Return whether an encoder-decoder starts from one token, read by a step like later ones."""
    own = self_attention_part(cache)
    is_new = bool(own.layers) and own.get_seq_length() == 0
    return isinstance(cache, EncoderDecoderCache) and is_new and input_ids.shape[1] == 1


def fill_source_cache(model: PreTrainedModel, model_kwargs: dict[str, Any]) -> None:
    """Cache the keys and values of the source, so that the first step needs no modules either."""
    cache = model_kwargs[CACHE]
    if not isinstance(cache, EncoderDecoderCache) or cache.is_updated.get(0):
        return
    states = model_kwargs["encoder_outputs"][0]
    source = cache.cross_attention_cache
    for layer in layers_of(model.get_decoder()):
        attention = layer.cross_attn
        source.update(*source_keys_and_values(attention, states), attention.layer_idx)
        cache.is_updated[attention.layer_idx] = True
