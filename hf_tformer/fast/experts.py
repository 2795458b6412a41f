"""A mixture of experts as functions of plain tensors (layers.py says how they are called).

Each expert is called once, with its tokens. A token alone takes its experts one after the other, as
products with a vector.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..model.experts import (
    CorrectionBias,
    Experts,
    GatedSharedExpert,
    MixtureMLP,
    Router,
    SharedExpert,
    SharedMixtureMLP,
    normalise,
)
from ..model.norms import unchanged
from .guards import trust
from .layers import (
    BRANCHES,
    WIDEST,
    AttentionContext,
    Branch,
    activation_function,
    in_parts,
    mlp_branch,
    norm_function,
)
from .products import TensorFunction, linear_function, product_with

KNOWN = ("eager", "batched_mm", "grouped_mm")  # implementations that compute the same
Routing = Callable[[Tensor], tuple[Tensor, Tensor]]  # of states to weights and experts


def calls_known_experts(experts: Any) -> bool:
    """Return whether calling the experts computes what a mixture is known for, in this process."""
    implementation = experts.config._experts_implementation
    is_shared_out = getattr(experts, "_is_expert_parallel", False)  # absent in transformers 5.16
    return implementation in KNOWN and not is_shared_out


def trust_mixtures() -> None:
    """Let guards.py and layers.py know the modules of a mixture."""
    trust(CorrectionBias, MixtureMLP, Router, SharedMixtureMLP)
    trust(SharedExpert, GatedSharedExpert)
    trust(Experts, only_if=calls_known_experts)
    BRANCHES.update(dict.fromkeys((MixtureMLP, SharedMixtureMLP), mixture_branch))


def mixture_branch(mlp: MixtureMLP, output: TensorFunction, tokens: int) -> Branch:
    """Return a mixture and what follows it, as what it adds to the states of so many tokens."""
    route, experts = routing_function(mlp.router, tokens), experts_function(mlp.experts, tokens)
    shared = shared_branch(mlp, tokens)
    change = norm_function(output) if isinstance(output, nn.Module) else output

    def branch(total: Tensor, states: Tensor, context: AttentionContext) -> Tensor:
        mixed = experts(states, *route(states))
        if shared is not None:
            mixed = shared(mixed, states, context)
        return total.add_(change(mixed))

    parts = -(-tokens * mlp.router.top_k * mlp.experts.intermediate_dim // WIDEST)
    return branch if parts < 2 else in_parts(branch, -(-tokens // parts))


def routing_function(router: Router, tokens: int) -> Routing:
    """Return the weights and the numbers of the experts [k] of a token, or [tokens, k] of many."""
    is_plain = router.correction is unchanged and router.limit is unchanged
    is_softmax = getattr(router.score, "func", None) is torch.softmax
    if not (is_plain and is_softmax and router.normalise is normalise):
        return partial(call_router, router)
    weight = router.weight.to(torch.promote_types(router.weight.dtype, torch.float32))

    def route(states: Tensor) -> tuple[Tensor, Tensor]:
        # The softmax over all experts, summing to 1 over those chosen, is the softmax over these.
        best, chosen = (states.to(weight.dtype) @ weight.t()).topk(router.top_k)
        weights = torch.softmax(best, -1)
        weights = weights if router.scale == 1 else weights * router.scale
        return weights.to(states.dtype), chosen

    return route


def call_router(router: Router, states: Tensor) -> tuple[Tensor, Tensor]:
    """Call a router for one token [hidden], or for many [tokens, hidden]."""
    _, weights, chosen = router(states.view(-1, states.shape[-1]))
    return (weights, chosen) if states.dim() > 1 else (weights[0], chosen[0])


def experts_function(experts: Experts, tokens: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the experts as a function of states, weights and numbers of experts."""
    gate_up, down = experts.gate_up_proj, experts.down_proj
    activate = activation_function(experts.act_fn)
    # With several tokens an expert gets them as a matrix, even a single one of them.
    count = 1 if tokens == 1 else max(2, tokens // experts.num_experts)
    expand, project = product_with(gate_up[0], count), product_with(down[0], count)

    def change(states: Tensor, expert: int) -> Tensor:
        gate, up = expand(gate_up[expert], states).chunk(2, dim=-1)
        return project(down[expert], activate(gate.contiguous()).mul_(up))

    def of_one(state: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        total = torch.zeros_like(state)
        for expert, weight in zip(chosen.tolist(), weights.tolist(), strict=True):
            total.add_(change(state, expert), alpha=weight)
        return total

    def of_many(states: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        total = torch.zeros_like(states)
        order = chosen.flatten().argsort()
        counts = chosen.flatten().bincount(minlength=experts.num_experts).tolist()
        places = (order // chosen.shape[-1]).split(counts)
        scales = weights.flatten()[order].split(counts)
        for expert, (place, scale) in enumerate(zip(places, scales, strict=True)):
            if len(place):
                changed = change(states[place], expert).mul_(scale[:, None])
                total.index_add_(0, place, changed)
        return total

    return of_one if tokens == 1 else of_many


def shared_branch(mlp: MixtureMLP, tokens: int) -> Branch | None:
    """Return the expert that all tokens take, as what it adds to their states, or None."""
    if not isinstance(mlp, SharedMixtureMLP):
        return None
    shared = mlp_branch(mlp.shared_expert, unchanged, tokens)
    if not isinstance(mlp.shared_expert, GatedSharedExpert):
        return shared
    gate = linear_function(mlp.shared_expert.gate, tokens)

    def branch(total: Tensor, states: Tensor, context: AttentionContext) -> Tensor:
        changed = shared(torch.zeros_like(states), states, context)
        return total.addcmul_(gate(states).sigmoid_(), changed)

    return branch
