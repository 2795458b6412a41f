# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""A mixture of experts in the place of an MLP, in which each token takes a few of many.

    hidden_states [batch, seq, hidden] → router → weights and numbers of k experts for each token
                                       → experts → sum, weighted (+ shared expert) → the same shape

The experts are called by transformers' interface, which `experts_implementation` chooses from.
"""

from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.integrations.moe import use_experts_implementation

from .layers import GatedMLP, build_activation
from .norms import unchanged


def best_groups(groups: int, kept: int, scores: Tensor) -> Tensor:
    """Hide the scores [tokens, experts] of all groups but those whose best two sum to most."""
    by_group = scores.unflatten(-1, (groups, -1))
    best = by_group.topk(2).values.sum(-1).topk(kept, sorted=False).indices
    is_kept = torch.zeros_like(by_group[..., 0], dtype=torch.bool).scatter(-1, best, True)
    return by_group.masked_fill(~is_kept[..., None], -torch.inf).flatten(-2)


def normalise(weights: Tensor) -> Tensor:
    """Let the weights [tokens, k] of each token's experts sum to 1."""
    return weights / weights.sum(-1, keepdim=True)


class CorrectionBias(nn.Module):
    """Adds to the score of each expert what its trainer balanced it by; no gradient reaches it."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.bias = nn.Buffer(torch.zeros(config.num_experts))

    def forward(self, scores: Tensor) -> Tensor:
        return scores + self.bias


# CODEPATH: sigmoid in dots1, GLM-4.5 and MiniMax M2; softmax in Mixtral and the others
SCORES = {"softmax": partial(torch.softmax, dim=-1), "sigmoid": torch.sigmoid}


class Router(nn.Module):
    """Chooses the experts of each token, and their weights.

    Reads from config: num_experts, num_experts_per_tok, hidden_size, scoring_func, router_bias,
    n_group, topk_group, norm_topk_prob, routed_scaling_factor.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.top_k, self.scale = config.num_experts_per_tok, config.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.score = SCORES[config.scoring_func]
        # CODEPATH: dots1, GLM-4.5, Ernie 4.5 and MiniMax M2 have one; the others not
        self.correction = CorrectionBias(config) if config.router_bias else unchanged
        # CODEPATH: dots1 and GLM-4.5 can have groups
        is_grouped = config.topk_group < config.n_group
        limits = config.n_group, config.topk_group
        self.limit = partial(best_groups, *limits) if is_grouped else unchanged
        # CODEPATH: Qwen2-MoE and OLMoE can take the scores as they are
        self.normalise = normalise if config.norm_topk_prob else unchanged

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[tokens, hidden] → logits [tokens, experts]; weights and experts [tokens, k]."""
        # In float32 at least: near ties would be decided by rounding.
        exact = torch.promote_types(hidden_states.dtype, torch.float32)
        with torch.autocast(hidden_states.device.type, enabled=False):
            logits = nn.functional.linear(hidden_states.to(exact), self.weight.to(exact))
            weights, experts = self.choose(logits)
        return logits, weights.to(hidden_states.dtype), experts

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the numbers of each token's experts, [tokens, k]."""
        scores = self.score(logits)
        experts = self.limit(self.correction(scores)).topk(self.top_k).indices
        return self.normalise(scores.gather(-1, experts)) * self.scale, experts


@use_experts_implementation
class Experts(nn.Module):
    """Gated MLPs side by side, stored as transformers' interface expects them.

    Reads from config: num_experts, hidden_size, moe_intermediate_size, hidden_act.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.num_experts, self.hidden_dim = config.num_experts, config.hidden_size
        self.intermediate_dim = inner = config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(self.num_experts, 2 * inner, self.hidden_dim))
        self.down_proj = nn.Parameter(torch.empty(self.num_experts, self.hidden_dim, inner))
        self.act_fn = build_activation(config.hidden_act)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Call each expert once, with its tokens: what `eager` stands for."""
        total = torch.zeros_like(hidden_states)
        # trf-ignore: TRF056 (one graph needs another implementation than eager)
        for expert in top_k_index.unique().tolist():
            if expert >= self.num_experts:  # of another process, in expert parallelism
                continue
            tokens, places = torch.where(top_k_index == expert)
            gate_up = nn.functional.linear(hidden_states[tokens], self.gate_up_proj[expert])
            gate, up = gate_up.chunk(2, dim=-1)
            changed = nn.functional.linear(self.act_fn(gate) * up, self.down_proj[expert])
            changed = changed * top_k_weights[tokens, places, None]
            total = total.index_add(0, tokens, changed.to(total.dtype))
        return total


class SharedExpert(GatedMLP):
    """An MLP that all tokens take, of a size of its own.

    Reads from config: hidden_size, shared_expert_intermediate_size, mlp_bias, hidden_act.
    """

    def __init__(self, config: PreTrainedConfig):
        nn.Module.__init__(self)
        hidden, inner = config.hidden_size, config.shared_expert_intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=config.mlp_bias)
        self.up_proj = nn.Linear(hidden, inner, bias=config.mlp_bias)
        self.down_proj = nn.Linear(inner, hidden, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)


class GatedSharedExpert(SharedExpert):
    """Shared expert whose output is scaled for each token by a gate."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.gate = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.gate(hidden_states).sigmoid() * super().forward(hidden_states)


class MixtureMLP(nn.Module):
    """A router and its experts, in the place of an MLP."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.router = Router(config)
        self.experts = Experts(config)

    @property
    def act_fn(self) -> nn.Module:
        return self.experts.act_fn

    def forward(self, hidden_states: Tensor) -> Tensor:
        tokens = hidden_states.flatten(0, -2)
        _, weights, experts = self.router(tokens)
        return self.experts(tokens, experts, weights).view_as(hidden_states)


class SharedMixtureMLP(MixtureMLP):
    """Experts, and beside them an MLP that all tokens take.

    Reads from config: shared_expert_gate (+ the fields of all three).
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        # CODEPATH: Qwen2-MoE has a gate; dots1, GLM-4.5, Ernie 4.5 and Granite have none
        shared_class = GatedSharedExpert if config.shared_expert_gate else SharedExpert
        self.shared_expert = shared_class(config)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states) + self.shared_expert(hidden_states)


def balance_loss(
    router_logits: tuple[Tensor, ...], routers: list[Router], attention_mask: Tensor | None
) -> Tensor:
    """Return how unevenly all layers spread the tokens over the experts (Fedus et al. 2021).

    Experts x the sum over experts of (share of the choices that fell on it) x (its mean
    probability): the number of choices per token if all is even. Padding does not count.
    """
    chosen, likely, count = [], [], 0.0
    for logits, router in zip(router_logits, routers, strict=True):
        probabilities = normalise(router.score(logits))
        choices = torch.zeros_like(probabilities).scatter(-1, router.choose(logits)[1], 1.0)
        real = torch.ones_like(logits[:, :1])
        if attention_mask is not None:
            real = attention_mask.to(logits).reshape(-1, 1)
        chosen.append((choices * real).sum(0).to(router_logits[0].device))
        likely.append((probabilities * real).sum(0).to(router_logits[0].device))
        count = count + real.sum().to(router_logits[0].device)
    shares, means = torch.stack(chosen).sum(0) / count, torch.stack(likely).sum(0) / count
    return (shares * means).sum() * len(means)


def share_of_labels(labels: Tensor, kwargs: dict) -> Tensor | float:
    """Return the share of this batch in a step that accumulates gradients over several.

    The losses of the batches are summed there, so each counts by its number of labels.
    """
    if (total := kwargs.get("num_items_in_batch")) is None:
        return 1.0
    shifted = kwargs.get("shift_labels")
    shifted = labels[..., 1:] if shifted is None else shifted
    return (shifted != kwargs.get("ignore_index", -100)).sum() / torch.as_tensor(total).clamp(min=1)
