# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the mixture of experts: a decoder whose MLPs are chosen for each token.

The defaults give Mixtral: softmax over eight experts, of which each token takes two. Other values
give the mixtures of Qwen2, Qwen3, Granite, OLMoE, Ernie 4.5, dots1, GLM-4.5 and MiniMax M2.
"""

from transformers.configuration_utils import strict

from .configuration_base import TP_PLAN, wrong
from .configuration_decoder import TformerDecoderConfig

if False:  # never run: makes transformers hash the modeling files too
    from .modeling_mixture import TformerMixtureModel

AUTO_MAP = {
    "AutoConfig": "configuration_mixture.TformerMixtureConfig",
    "AutoModel": "modeling_mixture.TformerMixtureModel",
    "AutoModelForCausalLM": "modeling_mixture.TformerMixtureForCausalLM",
    "AutoModelForSequenceClassification": (
        "modeling_mixture.TformerMixtureForSequenceClassification"
    ),
    "AutoModelForTokenClassification": "modeling_mixture.TformerMixtureForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_mixture.TformerMixtureForQuestionAnswering",
}

OWN_CHOICES: dict = {"scoring_func": ("softmax", "sigmoid"), "mlp_type": ("gated",)}
EXPERTS = "layers.*.mlp.experts"
SHARED = {f"layers.*.mlp.shared_expert.{name}_proj": "colwise" for name in ("gate", "up")}


@strict
class TformerMixtureConfig(TformerDecoderConfig):
    """Fields of the mixture of experts, besides those of the decoder-only family."""

    model_type = "tformer_mixture"
    own_choices = {**TformerDecoderConfig.own_choices, **OWN_CHOICES}
    base_model_tp_plan = {
        **TP_PLAN,
        **SHARED,
        "layers.*.mlp.shared_expert.down_proj": "rowwise",
        f"{EXPERTS}.gate_up_proj": "packed_colwise",
        f"{EXPERTS}.down_proj": "rowwise",
        EXPERTS: "moe_tp_experts",
    }
    base_model_ep_plan = {
        f"{EXPERTS}.gate_up_proj": "grouped_gemm",
        f"{EXPERTS}.down_proj": "grouped_gemm",
        EXPERTS: "ep_dispatch_experts",
    }

    num_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int | None = None  # of each expert; None: intermediate_size
    mlp_only_layers: list[int] | None = None  # layers, counted from 0, with one MLP for all tokens
    shared_expert_intermediate_size: int | None = None  # of the MLP beside the experts (Qwen2-MoE)
    shared_expert_gate: bool = False  # scales what the shared expert adds, by token (Qwen2-MoE)

    scoring_func: str = "softmax"  # sigmoid (GLM-4.5)
    norm_topk_prob: bool = True  # the weights of a token's experts sum to 1
    routed_scaling_factor: float | int = 1.0  # of these weights
    router_bias: bool = False  # added to scores to choose by, not to the weights (GLM-4.5)
    n_group: int = 1  # experts are chosen from the best topk_group of so many groups (dots1)
    topk_group: int = 1

    router_aux_loss_coef: float | int = 0.001  # of the balance loss, added where labels are given
    output_router_logits: bool = False

    def __post_init__(self, **kwargs: object) -> None:
        if self.moe_intermediate_size is None:
            self.moe_intermediate_size = self.intermediate_size
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)

    def check_sizes(self) -> None:
        super().check_sizes()
        sizes = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group")
        for name in (*sizes, "topk_group", "shared_expert_intermediate_size"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and value > 0):
                raise wrong(name, value, "choose a whole number of at least 1")

    def validate_architecture(self) -> None:
        super().validate_architecture()
        dense, depth = self.mlp_only_layers, self.num_hidden_layers
        if dense is not None and any(
            type(index) is not int or not 0 <= index < depth for index in dense
        ):
            raise wrong("mlp_only_layers", dense, f"give numbers of layers from 0 to {depth - 1}")
        if self.shared_expert_gate and self.shared_expert_intermediate_size is None:
            raise ValueError(
                "shared_expert_gate is True, but there is no shared expert: set "
                "shared_expert_intermediate_size, or shared_expert_gate to False"
            )
        size, rest = divmod(self.num_experts, self.n_group)
        if rest or (self.n_group > 1 and size < 2):
            raise ValueError(
                f"num_experts ({self.num_experts}) does not make n_group ({self.n_group}) equal "
                "groups of at least 2: choose others, or set n_group to 1"
            )
        if self.topk_group > self.n_group:
            raise wrong("topk_group", self.topk_group, f"choose at most n_group ({self.n_group})")
        if self.num_experts_per_tok > size * self.topk_group:
            raise ValueError(
                f"num_experts_per_tok is {self.num_experts_per_tok}, but only "
                f"{size * self.topk_group} experts can be chosen from: lower it, or raise "
                "num_experts or topk_group"
            )


TformerMixtureConfig.register_for_auto_class()
