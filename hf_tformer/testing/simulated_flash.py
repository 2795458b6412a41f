"""Implement flash attention's two functions with loops, for a CPU.

Only the kernel is simulated: its ragged batches, its bottom-right causal mask, its window and its
zeros for queries that attend to no key. The code around it, where wrong results come from, is
transformers' own.
"""

import pytest
import torch


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """Attend in a batch, [batch, seq, heads, head_dim]; the result has the shape of q."""
    rows = zip(q, k, v, strict=True)
    return torch.stack([attend(*row, softmax_scale, causal, window_size, softcap) for row in rows])


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """Attend in sequences laid end to end, [total, heads, head_dim], with their boundaries.

    A sequence that is longer than the maximum is an error of the caller.
    """
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert int(cu_seqlens_q.diff().max()) <= int(max_seqlen_q)
    assert int(cu_seqlens_k.diff().max()) <= int(max_seqlen_k)
    assert len(q) == cu_seqlens_q[-1]
    assert len(k) == cu_seqlens_k[-1]
    rows = zip(
        q.split(cu_seqlens_q.diff().tolist()),
        k.split(cu_seqlens_k.diff().tolist()),
        v.split(cu_seqlens_k.diff().tolist()),
        strict=True,
    )
    return torch.cat([attend(*row, softmax_scale, causal, window_size, softcap) for row in rows])


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
) -> torch.Tensor:
    """Attend in one sequence: [query, heads, dim], [key, kv_heads, dim] → [query, heads, dim]."""
    assert query.shape[-1] == key.shape[-1] == value.shape[-1], "the kernel has one head size"
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query, key) * (softmax_scale or query.shape[-1] ** -0.5)
    if softcap > 0:
        scores = (scores / softcap).tanh() * softcap
    # Bottom-right: the last query stands at the last key.
    distance = torch.arange(len(key)) - torch.arange(len(query))[:, None] - (len(key) - len(query))
    left, right = window_size
    visible = torch.ones_like(distance, dtype=torch.bool)
    if causal or right >= 0:
        visible &= distance <= (0 if causal else right)
    if left >= 0:
        visible &= distance >= -left
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1).nan_to_num(0.0)
    return torch.einsum("hqk,khd->qhd", weights, value)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers' flash attention call the functions above until the end of the test."""
    from transformers import modeling_flash_attention_utils as utils

    functions = (
        flash_attn_func,
        flash_attn_varlen_func,
        None,
        utils._pad_input,
        utils._unpad_input,
    )
    load = utils._lazy_imports

    def load_simulated(implementation: str, *args: object, **kwargs: object) -> tuple:
        # Another kernel's name is transformers' to load or to refuse.
        return functions if "flash" in implementation else load(implementation, *args, **kwargs)

    monkeypatch.setattr(utils, "_lazy_imports", load_simulated)
    monkeypatch.setattr(utils, "_loaded_implementation", None)
