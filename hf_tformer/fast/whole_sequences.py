"""How the tokens of whole texts attend, without those that are padding.

Texts of a length attend together. A long text under a narrow window attends by blocks, so that time
and memory grow with its length and not with the square of it.
"""

import torch
from torch import nn

from ..model.layer_types import LAYER_TYPES
from . import guards

BLOCK = (
    64  # tokens whose keys are looked up together; the best of 32 to 512 for windows of 8 to 256
)


class WholeSequences:
    """All tokens of each text, [tokens, …] without padding.

    real                 which of [batch, length] are tokens, None if all are
    position_embeddings  (cos, sin) or None, by kind of layer
    documents            [batch, length] the number of the packed text of each token, or None
    biases               what distances add (biases.py), or None
    """

    def __init__(self, shape, real, position_embeddings, documents=None, cache=None, biases=None):
        self.shape, self.cache = tuple(shape), cache
        self.biases = biases
        self.places = None  # of the tokens in what is padded
        self.groups = [self.shape]  # how many texts of a length follow each other, and the length
        if real is not None or documents is not None:
            self.places, self.groups = group_by_length(self.shape, real, documents)
        tables = {id(pair): self.take_tables(pair) for pair in position_embeddings.values()}
        self.cos_sin = {kind: tables[id(pair)] for kind, pair in position_embeddings.items()}
        self.block_masks = {}

    def take_tables(self, pair):
        """Twice [batch or 1, length, dims] → twice [tokens, 1, dims]"""
        if pair is None:
            return None
        return tuple(self.take(table.expand(*self.shape, -1)).unsqueeze(1) for table in pair)

    def take(self, padded):
        """[batch, length, …] → [tokens, …]"""
        tokens = padded.flatten(0, 1)
        return tokens if self.places is None else tokens.index_select(0, self.places)

    def put_back(self, tokens):
        """[tokens, …] → [batch, length, …], zeros where there is padding"""
        if self.places is not None:
            batch, length = self.shape
            blank = tokens.new_zeros(batch * length, *tokens.shape[1:])
            tokens = blank.index_copy_(0, self.places, tokens)
        return tokens.unflatten(0, self.shape)

    def attend(self, attention, queries, keys, values):
        cos_sin = self.cos_sin[LAYER_TYPES[attention.sliding_window is not None]]
        if cos_sin is not None:
            queries, keys = (rotate_tokens(states, *cos_sin) for states in (queries, keys))
        if self.cache is not None:
            padded = (self.put_back(states).transpose(1, 2) for states in (keys, values))
            self.cache.update(*padded, attention.layer_idx)
        sizes = [texts * length for texts, length in self.groups]
        parts = zip(self.groups, *(x.split(sizes) for x in (queries, keys, values)), strict=True)
        outputs = [self.attend_group(attention, *part) for part in parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def attend_group(self, attention, group, *states):
        """Texts of a length, each within itself."""
        length, window = group[1], attention.sliding_window
        slides = window is not None and length > window
        bias = None
        if self.biases is not None:
            bias = self.biases[attention.layer_idx % len(self.biases), ..., :length, :length]
        if slides and bias is None and length > 2 * sum(reach_of_block(attention)):
            texts = zip(*(x.split(length) for x in states), strict=True)
            return torch.cat([self.attend_by_blocks(attention, *text) for text in texts])
        mask = guards.seen_by_place(attention, length) if slides else None
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        queries, keys, values = (x.unflatten(0, group).transpose(1, 2) for x in states)
        is_causal = attention.is_causal and mask is None
        output = attend(attention, queries, keys, values, mask, is_causal)
        return output.transpose(1, 2).flatten(0, 1)

    def attend_by_blocks(self, attention, queries, keys, values):
        """One text: the tokens of a block see those between its first's window and its last's.

        Blocks stand where the texts of a batch stand elsewhere; neighbours share their keys.
        """
        length, (before, span) = len(queries), reach_of_block(attention)
        blocks = -(-length // BLOCK)
        room = blocks * BLOCK - length
        queries = pad_tokens(queries, 0, room).unflatten(0, (blocks, BLOCK)).transpose(1, 2)
        keys, values = (
            pad_tokens(x, before, room + span - before - BLOCK)
            .unfold(0, span, BLOCK)
            .transpose(2, 3)
            for x in (keys, values)
        )
        if length not in self.block_masks:
            self.block_masks[length] = mask_of_blocks(attention, length, queries)
        output = attend(attention, queries, keys, values, self.block_masks[length])
        return output.transpose(1, 2).flatten(0, 1)[:length]


def group_by_length(shape, real, documents):
    """Texts of a length beside each other: the places of their tokens, and [(texts, length)]."""
    batch, length = shape
    texts = torch.arange(batch)[:, None].expand(shape)
    if documents is not None:
        texts = texts * length + documents
    places = torch.arange(batch * length) if real is None else real.flatten().nonzero().flatten()
    lengths = texts.flatten()[places].unique_consecutive(return_counts=True)[1]
    places = places[lengths.repeat_interleave(lengths).argsort(stable=True)]
    lengths, counts = lengths.unique(return_counts=True)
    return places, list(zip(counts.tolist(), lengths.tolist(), strict=True))


def rotate_tokens(states, cos, sin):
    """As attention does, without a copy in which the halves have changed places."""
    half, size = sin.shape[-1] // 2, sin.shape[-1]
    turned = states * nn.functional.pad(cos, (0, states.shape[-1] - size), value=1.0)
    turned[..., :half].addcmul_(states[..., half:size], sin[..., :half], value=-1)
    turned[..., half:size].addcmul_(states[..., :half], sin[..., half:])
    return turned


def attend(attention, queries, keys, values, mask, is_causal=False):
    return nn.functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        mask,
        is_causal=is_causal,
        scale=attention.scaling,
        enable_gqa=attention.num_key_value_groups > 1,
    )


# Blocks


def reach_of_block(attention):
    """How many keys a block sees before its first token, and how many in all."""
    before = attention.sliding_window - 1
    return before, before + BLOCK + (0 if attention.is_causal else before)


def pad_tokens(states, before, after):
    """[tokens, heads, dim] with zeros on both sides"""
    return nn.functional.pad(states, (0, 0, 0, 0, before, after))


def mask_of_blocks(attention, length, states):
    """[blocks, 1, query, key], to be added: what the tokens of each block see."""
    before, span = reach_of_block(attention)
    blocks = len(states)
    keys = torch.arange(span) - before  # counted from the first token of the block
    distances = keys - torch.arange(BLOCK)[:, None]
    seen = (distances > -attention.sliding_window) & (distances < span - before - BLOCK + 1)
    places = torch.arange(0, blocks * BLOCK, BLOCK)[:, None] + keys
    seen = seen & ((places >= 0) & (places < length))[:, None, None]
    return states.new_zeros(seen.shape).masked_fill_(~seen, -torch.inf)
