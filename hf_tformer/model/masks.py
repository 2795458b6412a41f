# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""What becomes of a padding mask [batch, past + seq] before transformers' functions finish it."""

import torch
from transformers.masking_utils import find_packed_sequence_indices
from transformers.utils.generic import is_flash_attention_requested


def is_padding_mask(attention_mask) -> bool:
    """Whether it marks tokens; any other is finished, as those that generate prepares are."""
    return isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2


def unless_packed(attention_mask, position_ids, past_key_values):
    """Leaves out a padding mask that hides nothing, where positions are given and may restart.

    Beside any mask, be it all ones, transformers does not look for packed texts.
    """
    may_be_packed = position_ids is not None and past_key_values is None
    if not may_be_packed or not is_padding_mask(attention_mask) or torch.compiler.is_compiling():
        return attention_mask
    return None if attention_mask.all() else attention_mask


def refuse_packed_batch(config, attention_mask, position_ids, boundaries):
    """Packed texts in several rows: flash attention looks for them in a batch of one only.

    In a larger one it has to be told their `boundaries` (cu_seq_lens_q), of all rows laid end to
    end; without them the texts of a row would see each other.
    """
    if not is_flash_attention_requested(config) or boundaries is not None:
        return
    if position_ids is None or attention_mask is not None or torch.compiler.is_compiling():
        return
    if len(position_ids) > 1 and find_packed_sequence_indices(position_ids) is not None:
        raise ValueError(
            f"packed texts stand in a batch of {len(position_ids)}, and flash attention keeps them "
            "apart only in a batch of one: pack them into one row, or give cu_seq_lens_q"
        )


def mask_unwritten_keys(config, attention_mask, inputs_embeds, past_key_values):
    """A padding mask that ends where a static cache has been written, where flash attention runs.

    That backend reads every key it is handed, and such a cache hands over all it has room for.
    """
    is_static = past_key_values is not None and past_key_values.is_compileable
    is_finished = attention_mask is not None and not is_padding_mask(attention_mask)
    if not is_static or is_finished or not is_flash_attention_requested(config):
        return attention_mask
    if torch.compiler.is_compiling():  # asking the device for a length would break the graph
        return attention_mask
    batch, length = inputs_embeds.shape[:2]
    written = int(past_key_values.get_seq_length()) + length
    if attention_mask is None:
        return torch.ones(batch, written, dtype=torch.long, device=inputs_embeds.device)
    return attention_mask[:, :written]


def ignore_padding(labels, attention_mask, ignore_index, shift):
    """`labels` [batch, seq] without those that padding would have to predict.

    The token `shift` places before a label predicts it. Where that is padding, nothing is known,
    and what each backend computes there differs: such a label does not count. So a batch has one
    loss, on whichever side it is padded.
    """
    if labels is None or not is_padding_mask(attention_mask):
        return labels
    predicts = attention_mask[:, -labels.shape[1] :].to(labels.device)
    counted = labels.clone()
    counted[:, shift:].masked_fill_(predicts[:, : predicts.shape[1] - shift] == 0, ignore_index)
    return counted
