"""What the formats of mixtures of experts share: the tensors of a layer, and fields of the router.

What they share with decoders is in shared.py.
"""

from functools import partial

from ..engine.aliases import Config, Fields
from ..engine.errors import ConversionError
from ..engine.format import MIXTURE, same, without
from ..engine.rules import Rule, linears
from ..engine.transforms import StackExperts
from .shared import LAYER, LLAMA_FIELDS, decoder_format

OUR_EXPERTS = (f"{LAYER}.mlp.experts.gate_up_proj", f"{LAYER}.mlp.experts.down_proj")
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
MIXTRAL_PROJECTIONS = ("w1", "w3", "w2")
OUR_CORRECTION = f"{LAYER}.mlp.router.correction.bias"

MIXTURE_FIELDS = {**LLAMA_FIELDS, **same("num_experts_per_tok", "moe_intermediate_size")}
# Of models all of whose layers have experts, and one field for their size.
EXPERT_FIELDS = {
    **without(LLAMA_FIELDS, "intermediate_size"),
    **same("num_experts_per_tok"),
    "intermediate_size": "moe_intermediate_size",
}
ONE_SIZE = {"intermediate_size": "moe_intermediate_size"}  # which no layer of ours reads then
# Values of ours for a router that takes the softmax of all its logits.
SOFTMAX = {
    "scoring_func": "softmax",
    "router_bias": False,
    "n_group": 1,
    "routed_scaling_factor": 1.0,
}
NO_SHARED_EXPERT = {"shared_expert_intermediate_size": None}
EVERYWHERE = {"mlp_only_layers": None}  # every layer has experts

mixture_format = partial(decoder_format, our_classes=MIXTURE)


def router(theirs: str) -> Rule:
    return Rule(f"{LAYER}.mlp.router.weight", f"{LAYER}.{theirs}.weight")


def experts(count: int, theirs: str, projections: tuple[str, str, str] = PROJECTIONS) -> Rule:
    """Return the rule for experts that are modules of their own, numbered from 0."""
    names = tuple(
        f"{LAYER}.{theirs}.{expert}.{projection}.weight"
        for projection in projections
        for expert in range(count)
    )
    return Rule(OUR_EXPERTS, names, StackExperts())


def mixture_rules(rules: tuple[Rule, ...], theirs: Config) -> tuple[Rule, ...]:
    """Return the rules of a decoder, and those for experts by the names of Qwen."""
    count = number_of_experts(theirs)
    return (*rules, router("mlp.gate"), experts(count, "mlp.experts"))


def number_of_experts(theirs: Config) -> int:
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return next(getattr(theirs, name) for name in names if hasattr(theirs, name))


def shared_expert(theirs: str) -> tuple[Rule, ...]:
    names = same(*PROJECTIONS)
    return linears(f"{LAYER}.mlp.shared_expert", f"{LAYER}.{theirs}", names)


def balance_to_ours(theirs: Config) -> Fields:
    """Return the weight of the balance loss, which transformers adds where it is asked for."""
    is_added = theirs.output_router_logits
    return {"router_aux_loss_coef": theirs.router_aux_loss_coef if is_added else 0.0}


def balance_to_theirs(ours: Config) -> Fields:
    weight = ours.router_aux_loss_coef
    return {"router_aux_loss_coef": weight, "output_router_logits": weight != 0}


def first_dense(theirs: Config) -> Fields:
    """Return our field for models whose first layers have no experts."""
    count = min(theirs.first_k_dense_replace or 0, theirs.num_hidden_layers)
    return {"mlp_only_layers": list(range(count)) or None}


def first_with_experts(ours: Config, format_name: str) -> int:
    """Return how many layers have no experts, which have to be the first ones."""
    dense = sorted(ours.mlp_only_layers or ())
    if dense != list(range(len(dense))):
        raise ConversionError(
            f"mlp_only_layers is {ours.mlp_only_layers}, but in {format_name} only the first "
            "layers can lack experts: choose qwen2_moe or qwen3_moe"
        )
    return len(dense)


def listed_to_ours(theirs: Config) -> Fields:
    """Return our field for models that name the kind of each layer's MLP."""
    kinds = enumerate(theirs.mlp_layer_types)
    return {"mlp_only_layers": [index for index, kind in kinds if kind == "dense"] or None}


def listed_to_theirs(ours: Config) -> Fields:
    dense = ours.mlp_only_layers or ()
    layers = range(ours.num_hidden_layers)
    return {"mlp_layer_types": ["dense" if index in dense else "sparse" for index in layers]}


def shared_size(ours: Config, format_name: str) -> int:
    """Return of how many experts the shared one has the size; formats store this number."""
    count, rest = divmod(ours.shared_expert_intermediate_size or 0, ours.moe_intermediate_size)
    if rest:
        raise ConversionError(
            f"shared_expert_intermediate_size is {ours.shared_expert_intermediate_size}, which is "
            f"no multiple of moe_intermediate_size ({ours.moe_intermediate_size}), and "
            f"{format_name} stores how many times as large it is: choose qwen2_moe"
        )
    return count
