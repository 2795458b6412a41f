"""Steps of generation without the calls of modules: what stays the same is prepared once a text."""

import torch
from torch import nn
from transformers.cache_utils import EncoderDecoderCache

from .. import fast
from ..model.positions import count_positions
from . import biases, guards
from .caches import own_part
from .compiled import compiled_step
from .layers import layers_of, norm_function, source_keys_and_values, stack_functions
from .passes import NextBeamTokens, NextTokens
from .products import linear_function
from .rotations import rotations_of, tables_of

STEPS_AHEAD = 16  # whose positions are prepared at once
NUMBERS_AHEAD = 2**22  # at most, in what is prepared to rotate by


class Step:
    """Takes the tokens that were chosen, [texts]; returns the logits [texts, vocab] of the next.

    Begins behind what the cache holds. In a beam search each beam is a text here.
    """

    def __init__(self, model, cache, model_kwargs, texts, beams=1):
        self.model, self.stack = model, model.get_decoder()
        stack = self.stack
        self.embedding_weight, self.scale = stack.embed_tokens.weight, stack.embedding_scale

        mask, source_mask = model_kwargs.get("attention_mask"), None
        if isinstance(cache, EncoderDecoderCache):
            mask, source_mask = model_kwargs.get("decoder_attention_mask"), mask
        own, source = own_part(cache), getattr(cache, "cross_attention_cache", None)
        added, source_added = self.to_be_added(mask), self.to_be_added(source_mask)
        if beams == 1:
            self.run = NextTokens(texts, own, (added, added), source, source_added)
        else:
            self.run = NextBeamTokens(texts, beams, own, added, source, source_added)

        self.length = own.get_seq_length()  # of the text before them
        last = model_kwargs.get("position_ids") if source is None else None
        if last is None:
            counted = mask if self.length > 0 else None  # nothing was read: the last place is -1
            last = count_positions(counted, 1, self.length - 1, self.embedding_weight.device)
        last = last[:, -1:]
        self.last = last[:1] if (last == last[0]).all() else last.repeat_interleave(beams, 0)
        most = NUMBERS_AHEAD // (len(self.last) * stack.config.head_dim**2)
        self.ahead = max(min(STEPS_AHEAD, most), 1) if guards.can_prepare_positions(stack) else 1
        self.place, self.offsets = 0, ()  # among the steps whose positions are prepared
        self.weights = None

    def to_be_added(self, padding_mask):
        """[batch, key] → [batch, 1, 1, key], or nothing if nothing is hidden."""
        if padding_mask is None or padding_mask.all():
            return None
        hidden = padding_mask[:, None, None] == 0
        return self.embedding_weight.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)

    def prepare_functions(self):
        """The fastest function of a weight depends on the number of texts."""
        self.functions = self.compiled_functions()
        self.is_compiled = self.functions is not None
        if not self.is_compiled:
            self.functions = self.plain_functions()
        self.embed_norm = norm_function(self.stack.embed_norm)
        self.weights = guards.Weights((self.stack, self.model.lm_head))
        self.offsets = self.offsets[: self.place]  # what was prepared was of other weights, too

    def compiled_functions(self):
        """None where that is not wanted, or does not pay."""
        if not fast.is_compiled or self.run.texts > 1:
            return None
        return compiled_step(self.model, self.last + self.place + 1)

    def plain_functions(self):
        head, scale = linear_function(self.model.lm_head, self.run.texts), self.model.logit_scale
        functions = stack_functions(self.stack, self.run.texts)
        return [*functions, lambda hidden_states, run: head(hidden_states * scale)]

    def prepare_positions(self):
        """What the next few steps add to embeddings and scores, and rotate their heads by."""
        self.last, self.length = self.last + self.place, self.length + self.place
        position_ids = self.last + torch.arange(1, self.ahead + 1, device=self.last.device)
        hidden_size = self.embedding_weight.shape[1]
        blank = self.embedding_weight.new_zeros(1, self.ahead, hidden_size)
        self.offsets = self.stack.positions(blank, position_ids).unbind(1)
        position_embeddings = self.stack.rotary_emb(blank, position_ids)
        self.rotations = [()] * self.ahead
        if position_embeddings is not None:
            if self.is_compiled:
                self.rotations = tables_of(position_embeddings)
            else:
                head_dim = self.stack.config.head_dim
                self.rotations = rotations_of(position_embeddings, self.run.texts, head_dim)
        self.bias = biases.of_next_token(self.stack, self.length + self.ahead, blank.dtype)
        self.place = 0

    def bias_of_step(self):
        """A row for the last of the steps that are prepared ends with those of all before it."""
        return None if self.bias is None else self.bias[..., self.ahead - 1 - self.place :]

    def keep(self, texts):
        """Goes on with these texts, fewer than there were."""
        self.run.keep(texts)
        if len(self.last) > 1:
            self.last = self.last[texts]
        self.weights = None  # what is prepared was for another number of texts

    def __call__(self, tokens):
        if self.weights is None or not self.weights.are_unchanged():
            self.prepare_functions()
        if self.place == len(self.offsets):
            self.prepare_positions()
        run, place = self.run, self.place
        run.begin_step(self.rotations[place], self.bias_of_step())
        embedded = nn.functional.embedding(tokens, self.stack.embed_tokens.weight)
        hidden_states = torch.add(self.offsets[place], embedded, alpha=self.scale)
        hidden_states = self.embed_norm(hidden_states)
        if run.texts == 1:
            hidden_states = hidden_states[0]
        for function in self.functions:
            hidden_states = function(hidden_states, run)
        self.place += 1
        return hidden_states.contiguous().view(run.texts, -1)


def pays_to_drop(staying, texts):
    """To let texts go costs a copy of what the others have written: it waits for a quarter."""
    return 4 * staying <= 3 * texts


def prefill(model, input_ids, generation_config, model_kwargs, beams=1):
    """The step that comes after it, and the logits of its last token, [texts, vocab]."""
    fill_source_cache(model, model_kwargs)
    cache, texts = model_kwargs["past_key_values"], len(input_ids)
    if beams == 1 and starts_with_one_token(input_ids, cache):
        step = Step(model, cache, model_kwargs, texts)
        return step, step(input_ids[:, 0])
    outputs = model._prefill(input_ids, generation_config, model_kwargs)
    step = Step(model, outputs.past_key_values, model_kwargs, texts, beams)
    return step, outputs.logits[:, -1].clone()  # the others, if there are any, are let go


def starts_with_one_token(input_ids, cache):
    """Whether a translation begins with one token: then a step reads it, like every later one."""
    own = own_part(cache)
    is_new = bool(own.layers) and own.get_seq_length() == 0
    return isinstance(cache, EncoderDecoderCache) and is_new and input_ids.shape[1] == 1


def fill_source_cache(model, model_kwargs):
    """Its keys and values; then the first step needs no modules either."""
    cache = model_kwargs["past_key_values"]
    if not isinstance(cache, EncoderDecoderCache) or cache.is_updated.get(0):
        return
    states = model_kwargs["encoder_outputs"][0]
    source = cache.cross_attention_cache
    for layer in layers_of(model.get_decoder()):
        attention = layer.cross_attn
        source.update(*source_keys_and_values(attention, states), attention.layer_idx)
        cache.is_updated[attention.layer_idx] = True
