"""How the tokens of whole sequences attend, without padding.

Sequences of one length attend together. A long sequence under a narrow window attends in blocks, so
that time and memory grow with its length and not with the square of it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from ..model.attention import Attention, eager_attention
from .caches import append
from .layers import AttentionContext, Mask
from .rotations import PositionEmbeddings

# Tokens whose keys are gathered together; the best of 32 to 512 for windows of 8 to 256.
BLOCK = 64


class WholeSequences(AttentionContext):
    """All tokens of each sequence, [tokens, …] without padding.

    real                 which of [batch, length] are tokens, None if all are
    position_embeddings  (cos, sin) or None, by the key of the layers that take it
    documents            [batch, length] the number of each token's packed sequence, or None
    biases               what distances add to scores (biases.py), or None
    """

    def __init__(
        self,
        shape: torch.Size,
        real: Tensor | None,
        position_embeddings: dict[str | None, PositionEmbeddings | None],
        documents: Tensor | None = None,
        cache: DynamicCache | None = None,
        biases: Tensor | None = None,
    ):
        batch, length = shape
        self.cache: Any = cache
        self.shape, self.biases = (batch, length), biases
        self.past = 0 if cache is None else cache.get_seq_length()
        self.indices = None  # of the tokens, among all places of the padded batch
        self.groups = [self.shape]  # (sequences, length) of those that attend together, in order
        if real is not None or documents is not None:
            self.indices, self.groups = group_by_length(self.shape, real, documents)
        tables = {id(pair): self.take_tables(pair) for pair in position_embeddings.values()}
        self.cos_sin = {name: tables[id(pair)] for name, pair in position_embeddings.items()}
        self.block_masks: dict[int, Tensor] = {}

    def take_tables(self, pair: PositionEmbeddings | None) -> tuple[Tensor, ...] | None:
        """Convert both tables [batch or 1, length, dims] to [tokens, 1, dims]."""
        if pair is None:
            return None
        return tuple(self.take(table.expand(*self.shape, -1)).unsqueeze(1) for table in pair)

    def take(self, padded: Tensor) -> Tensor:
        """Remove padding, [batch, length, …] → [tokens, …]."""
        tokens = padded.flatten(0, 1)
        return tokens if self.indices is None else tokens.index_select(0, self.indices)

    def put_back(self, tokens: Tensor) -> Tensor:
        """Restore padding as zeros, [tokens, …] → [batch, length, …]."""
        if self.indices is not None:
            batch, length = self.shape
            blank = tokens.new_zeros(batch * length, *tokens.shape[1:])
            tokens = blank.index_copy_(0, self.indices, tokens)
        return tokens.unflatten(0, self.shape)

    def attend(self, attention: Attention, rotation_key: str | None, *heads: Tensor) -> Tensor:
        """Rotate the heads, fill the cache, and let each sequence attend to itself."""
        queries, keys, values = heads
        cos_sin = self.cos_sin[rotation_key]
        if cos_sin is not None:
            queries, keys = (rotate_tokens(states, *cos_sin) for states in (queries, keys))
        if self.cache is not None:
            padded = [self.put_back(states).transpose(1, 2) for states in (keys, values)]
            if self.past > 0:
                return self.attend_behind(attention, queries, *padded)
            self.cache.update(*padded, attention.layer_idx)
        sizes = [sequences * length for sequences, length in self.groups]
        parts = zip(self.groups, *(x.split(sizes) for x in (queries, keys, values)), strict=True)
        outputs = [self.attend_group(attention, *part) for part in parts]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def attend_behind(
        self, attention: Attention, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """Append the heads of sequences to a cache, and attend to what it holds before them."""
        layer = self.cache.layers[attention.layer_idx]
        keys, values = append(layer, keys, values)
        queries = queries.unflatten(0, self.shape).transpose(1, 2)
        length = queries.shape[2]
        mask = torch.ones(length, self.past + length, dtype=torch.bool).tril(self.past)
        return attend(attention, queries, keys, values, mask).transpose(1, 2).flatten(0, 1)

    def attend_group(self, attention: Attention, group: tuple[int, int], *states: Tensor) -> Tensor:
        """Let sequences of one length attend, each to itself; `states` are [tokens, heads, dim]."""
        length, window = group[1], attention.sliding_window
        if window is not None and length <= window:
            window = None  # it hides nothing
        bias = None
        if self.biases is not None:
            bias = self.biases[attention.layer_idx % len(self.biases), ..., :length, :length]
        is_causal = attention.is_causal
        if window is not None and bias is None and length > 2 * sum(block_reach(window, is_causal)):
            sequences = zip(*(x.split(length) for x in states), strict=True)
            return torch.cat(
                [self.attend_in_blocks(attention, window, *sequence) for sequence in sequences]
            )
        mask = None if window is None else window_mask(window, is_causal, length)
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        queries, keys, values = (x.unflatten(0, group).transpose(1, 2) for x in states)
        output = attend(attention, queries, keys, values, mask, is_causal and mask is None)
        return output.transpose(1, 2).flatten(0, 1)

    def attend_in_blocks(
        self, attention: Attention, window: int, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        """Let one sequence attend in blocks of queries, each to all keys that its windows reach.

        Blocks stand where sequences of a batch would stand; neighbours share their keys.
        """
        length, (before, span) = len(queries), block_reach(window, attention.is_causal)
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
            self.block_masks[length] = block_mask(window, attention.is_causal, length, queries)
        output = attend(attention, queries, keys, values, self.block_masks[length])
        return output.transpose(1, 2).flatten(0, 1)[:length]


def group_by_length(
    shape: tuple[int, int], real: Tensor | None, documents: Tensor | None
) -> tuple[Tensor, list[tuple[int, int]]]:
    """Order tokens so that sequences of one length are neighbours.

    Returns the indices of the tokens, and (sequences, length) of each group.
    """
    batch, length = shape
    sequences = torch.arange(batch)[:, None].expand(shape)
    if documents is not None:
        sequences = sequences * length + documents
    indices = torch.arange(batch * length) if real is None else real.flatten().nonzero().flatten()
    lengths = sequences.flatten()[indices].unique_consecutive(return_counts=True)[1]
    indices = indices[lengths.repeat_interleave(lengths).argsort(stable=True)]
    lengths, counts = lengths.unique(return_counts=True)
    return indices, list(zip(counts.tolist(), lengths.tolist(), strict=True))


def rotate_tokens(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads as the modules do, but without copying the swapped halves."""
    half, size = sin.shape[-1] // 2, sin.shape[-1]
    rotated = states * nn.functional.pad(cos, (0, states.shape[-1] - size), value=1.0)
    rotated[..., :half].addcmul_(states[..., half:size], sin[..., :half], value=-1)
    rotated[..., half:size].addcmul_(states[..., :half], sin[..., half:])
    return rotated


def attend(
    attention: Attention,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Mask,
    is_causal: bool = False,
) -> Tensor:
    """Call torch's attention with the scale and the key heads of a module, or bound its scores."""
    if attention.softcap_option:
        if is_causal:
            mask = window_mask(queries.shape[2], True, queries.shape[2])
        inputs = attention, queries, keys, values, mask, attention.scaling
        return eager_attention(*inputs, **attention.softcap_option)[0].transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        mask,
        is_causal=is_causal,
        scale=attention.scaling,
        enable_gqa=queries.shape[1] > keys.shape[1],
    )


def window_mask(window: int, is_causal: bool, length: int) -> Tensor:
    """Return which keys each query attends to under a window, [query, key]."""
    visible = torch.ones(length, length, dtype=torch.bool)
    return visible.tril(0 if is_causal else window - 1).triu(1 - window)


# Blocks


def block_reach(window: int, is_causal: bool) -> tuple[int, int]:
    """Return how many keys before its first token a block attends to, and how many in all."""
    before = window - 1
    return before, before + BLOCK + (0 if is_causal else before)


def pad_tokens(states: Tensor, before: int, after: int) -> Tensor:
    """Add zeros on both sides of [tokens, heads, dim]."""
    return nn.functional.pad(states, (0, 0, 0, 0, before, after))


def block_mask(window: int, is_causal: bool, length: int, states: Tensor) -> Tensor:
    """Return the additive mask of the keys of each block, [blocks, 1, query, key]."""
    before, span = block_reach(window, is_causal)
    blocks = len(states)
    keys = torch.arange(span) - before  # counted from the first token of the block
    distances = keys - torch.arange(BLOCK)[:, None]
    visible = (distances > -window) & (distances < span - before - BLOCK + 1)
    places = torch.arange(0, blocks * BLOCK, BLOCK)[:, None] + keys
    visible = visible & ((places >= 0) & (places < length))[:, None, None]
    return states.new_zeros(visible.shape).masked_fill_(~visible, -torch.inf)
