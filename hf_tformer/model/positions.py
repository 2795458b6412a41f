# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Positions of tokens: counted past padding, added to embeddings, or rotated by in attention.

    absolute  hidden_states [batch, seq, hidden], position_ids [batch or 1, seq] → hidden_states
    rotary    hidden_states, position_ids → (cos, sin), each [batch or 1, seq, rotated dims]

Each encoding is a module with one call signature; a model builds the ones it needs.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig
from transformers.masking_utils import find_packed_sequence_indices
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update
from transformers.utils.generic import is_flash_attention_requested


def is_padding_mask(attention_mask: object) -> bool:
    """Return whether a mask marks tokens [batch, seq]; others are prepared for the backend."""
    return isinstance(attention_mask, Tensor) and attention_mask.ndim == 2


def adjust_padding(
    config: PreTrainedConfig,
    inputs_embeds: Tensor,
    attention_mask: Tensor | dict | None,
    position_ids: Tensor | None = None,
    past_key_values: Cache | None = None,
    kwargs: dict | None = None,
) -> Tensor | dict | None:
    """Return the padding mask as transformers' mask functions need it.

    With flash attention and a static cache, the mask ends at the last token written: the rest of
    the cache is unused. Without a cache, a mask without padding is dropped: transformers detects
    packed sequences (position ids that restart) only if there is no mask.
    """
    is_finished = attention_mask is not None and not is_padding_mask(attention_mask)
    if is_finished or torch.compiler.is_compiling():  # reading values would break the graph
        return attention_mask
    is_flash = is_flash_attention_requested(config)
    if past_key_values is not None and past_key_values.is_compileable and is_flash:
        written = int(past_key_values.get_seq_length()) + inputs_embeds.shape[1]
        if attention_mask is None:
            attention_mask = inputs_embeds.new_ones(inputs_embeds.shape[0], written).long()
        return attention_mask[:, :written]
    if position_ids is None or past_key_values is not None:
        return attention_mask
    if attention_mask is not None and not attention_mask.all():
        return attention_mask
    is_batch = len(position_ids) > 1 and kwargs.get("cu_seq_lens_q") is None
    if is_flash and is_batch and find_packed_sequence_indices(position_ids) is not None:
        raise ValueError(
            f"a batch of {len(position_ids)} holds packed sequences, which flash attention keeps "
            "apart only in a batch of one: pack them into one sequence, or give cu_seq_lens_q"
        )
    return None


def count_positions(
    attention_mask: Tensor | dict | None, length: int, past_length: int, device: torch.device
) -> Tensor:
    """Return the position of each new token; padding is not counted, whichever side it is on.

    A padding mask is [batch, past + seq] with 1 for real tokens, or as wide as a static cache.
    """
    new = torch.arange(length, device=device) + past_length
    if not is_padding_mask(attention_mask):
        return new.unsqueeze(0)
    if isinstance(past_length, int) and attention_mask.shape[-1] < past_length + length:
        raise ValueError(
            f"attention_mask covers {attention_mask.shape[-1]} tokens, but {past_length} are in "
            f"the cache and {length} are new: give a mask over all {past_length + length}"
        )
    counted = (attention_mask.to(device).long().cumsum(-1) - 1).clamp(min=0)
    return counted.index_select(-1, new)


def count_visible(causal_mask: Tensor) -> Tensor:
    """Return positions from a finished causal mask [batch, 1, seq, key]: visible keys minus one."""
    visible = causal_mask if causal_mask.dtype == torch.bool else causal_mask == 0
    return (visible[:, 0].sum(-1) - 1).clamp(min=0)


class NoPositions(nn.Module):
    """Adds nothing: rotary models, and models without any encoding of positions."""

    def forward(self, hidden_states: Tensor, position_ids: Tensor) -> Tensor:
        return hidden_states


class SinusoidalPositions(nn.Module):
    """Sinusoids (Vaswani 2017, section 3.5), computed where needed: no table, no length limit."""

    def __init__(self, hidden_size: int, layout: str):
        super().__init__()
        self.hidden_size = hidden_size
        self.joined_at = {"interleaved": -1, "halves": -2}[layout]  # in pairs, or sines first

    def forward(self, hidden_states: Tensor, position_ids: Tensor) -> Tensor:
        angles = self.angles(position_ids[..., None].float())  # [batch, seq, hidden / 2]
        both = torch.stack((angles.sin(), angles.cos()), dim=self.joined_at)
        positions = both.flatten(-2)[..., : self.hidden_size]
        return hidden_states + positions.to(hidden_states.dtype)

    def angles(self, positions: Tensor) -> Tensor:
        dims = torch.arange(0, self.hidden_size, 2, device=positions.device, dtype=torch.float32)
        return positions * 10000.0 ** (-dims / self.hidden_size)


class FairseqPositions(SinusoidalPositions):
    """Fairseq's sinusoids: counted from pad_token_id + 1; the lowest frequency is 1 / 10000."""

    def __init__(self, hidden_size: int, pad_token_id: int):
        super().__init__(hidden_size, "halves")
        self.first = pad_token_id + 1

    def angles(self, positions: Tensor) -> Tensor:
        pairs = self.hidden_size // 2
        dims = torch.arange(pairs, device=positions.device, dtype=torch.float32)
        return (positions + self.first) * 10000.0 ** (-dims / max(pairs - 1, 1))


class LearnedPositions(nn.Embedding):
    """A table with one row per position, up to max_position_embeddings."""

    def forward(self, hidden_states: Tensor, position_ids: Tensor) -> Tensor:
        # Reading the values would stall an accelerator; there the lookup itself stops the program.
        is_readable = position_ids.device.type == "cpu" and not torch.compiler.is_compiling()
        if is_readable and (last := int(position_ids.max())) >= self.num_embeddings:
            raise ValueError(
                f"a token stands at position {last}, but max_position_embeddings is "
                f"{self.num_embeddings} and learned positions end there: shorten the input, or "
                "train a model with more positions"
            )
        return hidden_states + super().forward(position_ids)


def build_positions(config: PreTrainedConfig) -> nn.Module:
    """Build the absolute positions. Reads from config: position_embedding_type,
    max_position_embeddings, hidden_size, sinusoidal_layout, pad_token_id."""
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

    def forward(self, hidden_states: Tensor, position_ids: Tensor) -> None:
        return None


class RotaryEmbedding(nn.Module):
    """Rotary positions (Su 2021) in two halves, of every type that transformers supports.

    The name and the two buffers follow transformers' convention: its loader recomputes them and its
    decorator replaces them for the types whose frequencies depend on the length.
    """

    def __init__(self, config: PreTrainedConfig, device: torch.device | None = None):
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
    def compute_default_rope_parameters(
        config: PreTrainedConfig, device: torch.device | None = None, **kwargs: object
    ) -> tuple[Tensor, float]:
        rope = config.rope_parameters
        size = int(config.head_dim * rope.get("partial_rotary_factor", 1.0))
        dims = torch.arange(0, size, 2, dtype=torch.float32, device=device)
        return 1.0 / rope["rope_theta"] ** (dims / size), 1.0

    def _apply(self, fn: Callable, recurse: bool = True) -> "RotaryEmbedding":
        # `.half()` and `.to(bfloat16)` would round the frequencies for good: they stay float32. If
        # a later torch does not call this method, they are rounded, as Llama's are.
        exact = {name: getattr(self, name) for name in ("inv_freq", "original_inv_freq")}
        super()._apply(fn, recurse)
        for name, before in exact.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, hidden_states: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = self.inv_freq.to(hidden_states.device, torch.float32)
        angles = position_ids[..., None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)  # each angle for both dimensions of its pair
        cos, sin = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return cos.to(hidden_states.dtype), sin.to(hidden_states.dtype)


class RotaryByLayerType(nn.ModuleDict):
    """One rotary embedding for each layer type; returns a dict of (cos, sin) by layer type."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        for name, rope in config.rope_parameters.items():
            # transformers' formulas read flat rotary parameters only.
            flat = copy.copy(config)
            flat.rope_parameters = dict(rope)
            self[name] = RotaryEmbedding(flat)

    def forward(
        self, hidden_states: Tensor, position_ids: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        return {name: rotary(hidden_states, position_ids) for name, rotary in self.items()}


def build_rotary(config: PreTrainedConfig) -> nn.Module:
    """Build the rotary positions. Reads from config: position_embedding_type, rope_parameters,
    head_dim, max_position_embeddings."""
    # CODEPATH: rotary in Llama, Mistral and Qwen; the others have nothing to rotate by
    if config.position_embedding_type != "rotary":
        return NoRotation()
    # CODEPATH: by layer type in Gemma 3, OLMo-3 and ModernBERT; one for all layers in the others
    # not is_by_layer_type: an encoder-decoder carries no layer_types.py
    by_layer_type = any(isinstance(rope, dict) for rope in config.rope_parameters.values())
    return RotaryByLayerType(config) if by_layer_type else RotaryEmbedding(config)
