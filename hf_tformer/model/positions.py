# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Where a token stands: absolute positions added to the embeddings, rotary ones applied in
attention.

    absolute  hidden_states [batch, seq, hidden], position_ids [batch or 1, seq] → hidden_states
    rotary    hidden_states, position_ids → (cos, sin), each [batch or 1, seq, rotated dims]

Each encoding is a leaf with one call signature, so a model builds the one it needs and never asks
again.
"""

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update

from .masks import is_padding_mask


def count_positions(attention_mask, seq_length, past_length, device):
    """Position of each new token: padding is not counted, whichever side it is on.

    `attention_mask` is [batch, past + seq] with 1 for real tokens, or anything else where padding
    is unknown. It may be wider, as the width of a static cache is.
    """
    new = torch.arange(seq_length, device=device) + past_length
    if not is_padding_mask(attention_mask):
        return new.unsqueeze(0)
    if isinstance(past_length, int) and attention_mask.shape[-1] < past_length + seq_length:
        raise ValueError(
            f"attention_mask covers {attention_mask.shape[-1]} tokens, but {past_length} are in "
            f"the cache and {seq_length} are new: give a mask over all {past_length + seq_length}"
        )
    counted = (attention_mask.to(device).long().cumsum(-1) - 1).clamp(min=0)
    return counted.index_select(-1, new)


def count_visible(causal_mask):
    """The same from a finished causal mask [batch, 1, seq, key]: what a token sees, less itself."""
    visible = causal_mask if causal_mask.dtype == torch.bool else causal_mask == 0
    return (visible[:, 0].sum(-1) - 1).clamp(min=0)


class NoPositions(nn.Module):
    """Adds nothing: rotary models, and a seed whose code never applied the positions its text
    describes."""

    def forward(self, hidden_states, position_ids):
        return hidden_states


class SinusoidalPositions(nn.Module):
    """Vaswani 2017, section 3.5. Computed where it is needed: no table, no length limit, always
    float32."""

    def __init__(self, hidden_size, layout):
        super().__init__()
        self.hidden_size = hidden_size
        self.arrange = {"interleaved": self.interleaved, "halves": self.halves}[layout]

    @staticmethod
    def interleaved(sines, cosines):
        return torch.stack((sines, cosines), dim=-1).flatten(-2)

    @staticmethod
    def halves(sines, cosines):
        return torch.cat((sines, cosines), dim=-1)

    def forward(self, hidden_states, position_ids):
        angles = self.angles(position_ids[..., None].float())  # [batch, seq, hidden / 2]
        positions = self.arrange(angles.sin(), angles.cos())[..., : self.hidden_size]
        return hidden_states + positions.to(hidden_states.dtype)

    def angles(self, places):
        dims = torch.arange(0, self.hidden_size, 2, device=places.device, dtype=torch.float32)
        return places * 10000.0 ** (-dims / self.hidden_size)


class FairseqPositions(SinusoidalPositions):
    """Fairseq's: counted from behind the id of padding, and the slowest turns at 1 / 10000."""

    def __init__(self, hidden_size, pad_token_id):
        super().__init__(hidden_size, "halves")
        self.first = pad_token_id + 1

    def angles(self, places):
        pairs = self.hidden_size // 2
        dims = torch.arange(pairs, device=places.device, dtype=torch.float32)
        return (places + self.first) * 10000.0 ** (-dims / max(pairs - 1, 1))


class LearnedPositions(nn.Embedding):
    """A table with one row per position, up to max_position_embeddings."""

    def forward(self, hidden_states, position_ids):
        # On an accelerator looking at the values would stall it; there the lookup itself stops the
        # program.
        if position_ids.device.type == "cpu" and not torch.compiler.is_compiling():
            self.check_range(int(position_ids.max()))
        return hidden_states + super().forward(position_ids)

    def check_range(self, last):
        if last >= self.num_embeddings:
            raise ValueError(
                f"a token stands at position {last}, but max_position_embeddings is "
                f"{self.num_embeddings} and learned positions end there: shorten the input, or "
                "train a model with more positions"
            )


def build_positions(config):
    """Reads from config: position_embedding_type, max_position_embeddings, hidden_size,
    sinusoidal_layout, pad_token_id."""
    # CODEPATH: learned in GPT-2 and BART
    if config.position_embedding_type == "learned":
        return LearnedPositions(config.max_position_embeddings, config.hidden_size)
    # CODEPATH: sinusoidal in the 2017 paper and Marian; rotary models add nothing here
    if config.position_embedding_type == "sinusoidal":
        # CODEPATH: fairseq's in M2M100, NLLB and XGLM; the 2017 paper and Marian count from 0
        if config.sinusoidal_layout == "fairseq":
            return FairseqPositions(config.hidden_size, config.pad_token_id)
        return SinusoidalPositions(config.hidden_size, config.sinusoidal_layout)
    return NoPositions()


class NoRotation(nn.Module):
    """Gives attention nothing to rotate by."""

    def forward(self, hidden_states, position_ids):
        return None


class RotaryEmbedding(nn.Module):
    """Rotary positions (Su 2021), half-split, of every type that transformers knows.

    The name and the two buffers follow transformers' convention: its loader recomputes them after a
    meta-device load, and its decorator replaces them for the types whose frequencies depend on the
    length.
    """

    def __init__(self, config, device=None):
        super().__init__()
        self.config = config
        self.rope_type = config.rope_parameters["rope_type"]
        self.max_seq_len_cached = config.max_position_embeddings
        self.original_max_seq_len = config.max_position_embeddings
        frequencies = ROPE_INIT_FUNCTIONS.get(self.rope_type, self.compute_default_rope_parameters)
        inv_freq, self.attention_scaling = frequencies(config, device)
        self.inv_freq = nn.Buffer(inv_freq, persistent=False)
        self.original_inv_freq = nn.Buffer(inv_freq.clone(), persistent=False)

    @staticmethod
    def compute_default_rope_parameters(config, device=None, **kwargs):
        rope = config.rope_parameters
        size = int(config.head_dim * rope.get("partial_rotary_factor", 1.0))
        dims = torch.arange(0, size, 2, dtype=torch.float32, device=device)
        return 1.0 / rope["rope_theta"] ** (dims / size), 1.0

    def _apply(self, fn, recurse=True):
        # `.half()` and `.to(bfloat16)` would round the frequencies for good: they stay float32. If
        # torch ever calls another method for it, they are rounded, as Llama's are.
        exact = {name: getattr(self, name) for name in ("inv_freq", "original_inv_freq")}
        super()._apply(fn, recurse)
        for name, before in exact.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, hidden_states, position_ids):
        frequencies = self.inv_freq.to(hidden_states.device, torch.float32)
        angles = position_ids[..., None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)  # one for each of a pair
        cos, sin = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return cos.to(hidden_states.dtype), sin.to(hidden_states.dtype)


def build_rotation(config):
    """Reads from config: position_embedding_type, rope_parameters, head_dim,
    max_position_embeddings."""
    # CODEPATH: rotary in Llama, Mistral and Qwen; the others have nothing to rotate by
    return RotaryEmbedding(config) if config.position_embedding_type == "rotary" else NoRotation()
