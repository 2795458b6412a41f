"""LitGPT: one module whose settings give Llama, GPT-NeoX, Phi, OLMo, Gemma and Mixtral."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .llms_from_scratch import rotate_halves
from .parts import later, repeat_heads, rotary_angles, split_heads


class Norm(nn.Module):
    """RMSNorm, or Gemma's, whose stored weight is an offset from one."""

    def __init__(self, size: int, eps: float, offset: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps, self.offset = eps, offset

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        normalised = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.eps)
        return normalised * (self.offset + self.weight)


def norm(config: SimpleNamespace, size: int) -> nn.Module:
    if config.norm_class_name == "RMSNorm":
        return Norm(size, config.norm_eps, float(config.adds_one_to_norms))
    return nn.LayerNorm(size, config.norm_eps, elementwise_affine=config.norms_have_weights)


def norm_where(is_there: bool, config: SimpleNamespace) -> nn.Module:
    return norm(config, config.n_embd) if is_there else nn.Identity()


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config, size = config, config.head_size
        heads, groups = config.n_head, config.n_query_groups
        has_bias = config.bias or config.attn_bias
        self.qkv = nn.Linear(config.n_embd, (heads + 2 * groups) * size, bias=has_bias)
        self.proj = nn.Linear(heads * size, config.n_embd, bias=config.bias)
        if config.norm_qk:
            joint = config.norm_qk_type == "olmo2"
            self.norm_q = norm(config, size * heads if joint else size)
            self.norm_k = norm(config, size * groups if joint else size)

    def forward(
        self, states: torch.Tensor, angles: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        config, size = self.config, self.config.head_size
        counts = config.n_head, config.n_query_groups, config.n_query_groups
        parts = self.qkv(states).split([size * count for count in counts], dim=-1)
        query, key, value = map(split_heads, self.joint_norms(*parts), counts)
        if config.norm_qk and config.norm_qk_type == "default":
            query, key = self.norm_q(query), self.norm_k(key)
        query, key = self.rotated(query, angles), self.rotated(key, angles)
        times = config.n_head // config.n_query_groups
        key, value = repeat_heads(key, times), repeat_heads(value, times)
        scores = query @ key.mT / (config.attention_scores_scalar or size) ** 0.5
        scores = capped(scores, config.attention_logit_softcapping)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        return self.proj((weights @ value).transpose(1, 2).flatten(2))

    def joint_norms(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        if self.config.norm_qk and self.config.norm_qk_type == "olmo2":
            query, key = self.norm_q(query), self.norm_k(key)
        return query, key, value

    def rotated(self, states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        width = 2 * angles.shape[-1]
        return torch.cat((rotate_halves(states[..., :width], angles), states[..., width:]), dim=-1)


def capped(scores: torch.Tensor, limit: float | None) -> torch.Tensor:
    return scores if limit is None else limit * torch.tanh(scores / limit)


class PlainMLP(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.fc = nn.Linear(config.n_embd, config.intermediate_size, bias=config.bias)
        self.proj = nn.Linear(config.intermediate_size, config.n_embd, bias=config.bias)
        self.activation = partial(F.gelu, approximate=config.gelu_approximate)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.proj(self.activation(self.fc(states)))


class GatedMLP(nn.Module):
    def __init__(self, config: SimpleNamespace, size: int | None = None) -> None:
        super().__init__()
        size = size or config.intermediate_size
        self.fc_1 = nn.Linear(config.n_embd, size, bias=config.bias)
        self.fc_2 = nn.Linear(config.n_embd, size, bias=config.bias)
        self.proj = nn.Linear(size, config.n_embd, bias=config.bias)
        gelu = partial(F.gelu, approximate=config.gelu_approximate)
        self.activation = gelu if config.mlp_class_name == "GemmaMLP" else F.silu

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.proj(self.activation(self.fc_1(states)) * self.fc_2(states))


class Router(nn.Module):
    """Chooses experts by their probabilities, or from the best groups by a corrected sigmoid."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n_expert, config.n_embd))
        if config.n_expert_groups:
            self.e_score_correction_bias = nn.Buffer(torch.zeros(config.n_expert))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        config, logits = self.config, F.linear(tokens, self.weight)
        if not config.n_expert_groups:
            best, chosen = logits.topk(config.n_expert_per_token)
            return best.softmax(-1), chosen
        scores = logits.sigmoid()
        groups = (scores + self.e_score_correction_bias).unflatten(-1, (config.n_expert_groups, -1))
        sums = groups.topk(config.n_topk_scores_per_group).values.sum(-1)
        kept = torch.zeros_like(sums).scatter(-1, sums.topk(config.n_topk_groups).indices, 1.0)
        allowed = groups.masked_fill(kept[..., None] == 0, 0.0).flatten(-2)
        chosen = allowed.topk(config.n_expert_per_token).indices
        weights = scores.gather(-1, chosen)
        return weights / weights.sum(-1, keepdim=True) if config.norm_topk_prob else weights, chosen


class MixtureMLP(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        size, self.scale = config.moe_intermediate_size, config.routed_scaling_factor
        self.gate = Router(config)
        self.experts = nn.ModuleList(GatedMLP(config, size) for _ in range(config.n_expert))
        shared = size * (config.n_shared_expert or 0)
        self.shared_experts = GatedMLP(config, shared) if shared else None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(states.flatten(0, -2))
        shares = torch.zeros(len(weights), len(self.experts)).scatter(-1, chosen, weights)
        outputs = torch.stack([expert(states) for expert in self.experts], dim=-1)
        total = (outputs * shares.view(*states.shape[:-1], 1, -1)).sum(-1) * self.scale
        return total if self.shared_experts is None else total + self.shared_experts(states)


MLPS = {"GptNeoxMLP": PlainMLP, "LLaMAMLP": GatedMLP, "GemmaMLP": GatedMLP, "LLaMAMoE": MixtureMLP}


class Block(nn.Module):
    def __init__(self, config: SimpleNamespace, number: int) -> None:
        super().__init__()
        self.config, is_dense = config, number < (config.first_k_dense_replace or 0)
        self.norm_1 = norm_where(config.norm_1, config)
        self.attn = Attention(config)
        self.post_attention_norm = norm_where(config.post_attention_norm, config)
        self.norm_2 = norm_where(config.norm_2 and not config.shared_attention_norm, config)
        self.mlp = GatedMLP(config) if is_dense else MLPS[config.mlp_class_name](config)
        self.post_mlp_norm = norm_where(config.post_mlp_norm, config)

    def forward(
        self, states: torch.Tensor, angles: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        first = self.norm_1(states)
        attended = states + self.post_attention_norm(self.attn(first, angles, hidden))
        if not self.config.parallel_residual:
            second = self.norm_2(attended)
        else:
            second = first if self.config.shared_attention_norm else self.norm_2(states)
        return attended + self.post_mlp_norm(self.mlp(second))


class LitGPT(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config, width = config, config.n_embd
        words = nn.Embedding(config.padded_vocab_size, width)
        self.transformer = nn.ModuleDict(
            {
                "wte": words,
                "h": nn.ModuleList(Block(config, number) for number in range(config.n_layer)),
                "ln_f": norm(config, width),
            }
        )
        self.lm_head = nn.Linear(width, config.padded_vocab_size, bias=config.lm_head_bias)
        if config.tied:
            self.lm_head.weight = words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        config, length = self.config, ids.shape[1]
        states = self.transformer["wte"](ids)
        states = states * config.n_embd**0.5 if config.scale_embeddings else states
        far = torch.ones(length, length, dtype=torch.bool).tril(-(config.window or length))
        masks = {False: later(ids), True: later(ids) | far}
        angles = {False: self.angles(length, local=False), True: self.angles(length, local=True)}
        for slides, block in zip(config.slides, self.transformer["h"].children(), strict=True):
            states = block(states, angles[slides], masks[slides])
        return capped(
            self.lm_head(self.transformer["ln_f"](states)), config.final_logit_softcapping
        )

    def angles(self, length: int, local: bool) -> torch.Tensor:
        """Return the angles of full or of sliding layers."""
        config, scaling, factor = self.config, None, float(self.config.rope_condense_ratio)
        theta, adjusted = float(config.rope_base), config.rope_adjustments
        if local and config.rope_local_base_freq is not None:
            theta, adjusted = float(config.rope_local_base_freq), None
        if adjusted and len(adjusted) > 1:
            low, high = adjusted["low_freq_factor"], adjusted["high_freq_factor"]
            scaling = adjusted["factor"], low, high, adjusted["original_max_seq_len"]
        elif adjusted:
            factor *= adjusted["factor"]
        size = int(config.rotary_percentage * config.head_size)
        return rotary_angles(length, size, theta, scaling) / factor
