"""LitGPT's folder: lit_model.pth, and all settings in model_config.yaml."""

from functools import partial
from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.format import DECODER, MIXTURE, carry
from ...engine.plain import TOKEN_IDS, PlainFormat
from ...engine.rules import Rule, fused, linear, linears
from ...engine.transforms import Ones, SplitHeads, StackExperts, Zeros
from ...references.litgpt import LitGPT
from ..shared import GATED_MLP, GPT2_LAYER, LAYER, QKV
from ..shared_mixtures import OUR_CORRECTION, OUR_EXPERTS
from .litgpt_folder import ACTIVATIONS, SETTINGS, is_dense, is_mixture, open_folder, sizes

MLP = f"{GPT2_LAYER}.mlp"
GATED = dict(zip(GATED_MLP, ("fc_1", "fc_2", "proj"), strict=True))
PLAIN = {"mlp.up_proj": "fc", "mlp.down_proj": "proj"}
SHARED = {name.replace("mlp.", "mlp.shared_expert."): other for name, other in GATED.items()}
PARTS = ("fc_1", "fc_2", "proj")  # of an expert


def norms_of(theirs: SimpleNamespace) -> dict[str, str]:
    """Return our norms and theirs."""
    found = {
        "self_attn_norm": theirs.norm_1 and "norm_1",
        "mlp_norm": theirs.norm_2 and not theirs.shared_attention_norm and "norm_2",
        "self_attn_output": theirs.post_attention_norm and "post_attention_norm",
        "mlp_output": theirs.post_mlp_norm and "post_mlp_norm",
    }
    norms = {f"{LAYER}.{ours}": f"{GPT2_LAYER}.{name}" for ours, name in found.items() if name}
    joint = ".norm" if theirs.norm_qk_type == "olmo2" else ""
    heads = {
        f"{LAYER}.self_attn.{x}_norm{joint}": f"{GPT2_LAYER}.attn.norm_{x}"
        for x in "qk"
        if theirs.norm_qk
    }
    return {**norms, **heads, "model.norm": "transformer.ln_f"}


def rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    names = PLAIN if theirs.mlp_class_name == "GptNeoxMLP" else GATED
    return (
        Rule("model.embed_tokens.weight", "transformer.wte.weight"),
        *linear("lm_head", "lm_head"),
        *(rule for ours, name in norms_of(theirs).items() for rule in norm(ours, name, theirs)),
        *fused((f"{LAYER}.{x}" for x in QKV), f"{GPT2_LAYER}.attn.qkv", SplitHeads()),
        *linear(f"{LAYER}.self_attn.o_proj", f"{GPT2_LAYER}.attn.proj"),
        *linears(LAYER, MLP, names),
    )


def norm(ours: str, name: str, theirs: SimpleNamespace) -> tuple[Rule, ...]:
    if theirs.norms_have_weights:
        return linear(ours, name)
    weight = Rule(f"{ours}.weight", (), Ones("hidden_size"))
    return weight, Rule(f"{ours}.bias", (), Zeros("hidden_size"))


def mixture_rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    experts = tuple(
        f"{MLP}.experts.{expert}.{part}.weight"
        for part in PARTS
        for expert in range(theirs.n_expert)
    )
    return (
        *rules(theirs),
        Rule(f"{LAYER}.mlp.router.weight", f"{MLP}.gate.weight"),
        Rule(OUR_CORRECTION, f"{MLP}.gate.e_score_correction_bias"),
        Rule(OUR_EXPERTS, experts, StackExperts()),
        *linears(LAYER, f"{MLP}.shared_experts", SHARED),
    )


# theirs → ours
FIELDS = {
    "padded_vocab_size": "vocab_size",
    "n_embd": "hidden_size",
    "intermediate_size": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_query_groups": "num_key_value_heads",
    "head_size": "head_dim",
    "block_size": "max_position_embeddings",
    "bias": "mlp_bias",
    "lm_head_bias": "lm_head_bias",
    "attention_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "scale_embeddings": "scale_embedding",
    "tied": "tie_word_embeddings",
    **{name: name for name in TOKEN_IDS},
}


def to_ours(theirs: SimpleNamespace) -> Fields:
    is_rms, act = (
        theirs.norm_class_name == "RMSNorm",
        ACTIVATIONS.get(theirs.mlp_class_name, "silu"),
    )
    if act == "gelu" and theirs.gelu_approximate == "tanh":
        act = "gelu_pytorch_tanh"
    rms_norm = "rmsnorm_offset" if theirs.adds_one_to_norms else "rmsnorm"
    scalar, joint = theirs.attention_scores_scalar, theirs.norm_qk_type == "olmo2"
    return {
        **carry(theirs, FIELDS),
        "position_embedding_type": "rotary",
        "rope_parameters": rope_of(theirs),
        "norm_type": rms_norm if is_rms else "layernorm",
        ("rms_norm_eps" if is_rms else "layer_norm_eps"): theirs.norm_eps,
        "norm_position": norm_position(theirs),
        "parallel_residual": residual_of(theirs),
        "embedding_norm": False,
        "final_norm": True,
        "qk_norm": theirs.norm_qk and ("all" if joint else True),
        "mlp_type": "plain" if theirs.mlp_class_name == "GptNeoxMLP" else "gated",
        "hidden_act": act,
        "attention_bias": theirs.bias or theirs.attn_bias,
        "attention_output_bias": theirs.bias,
        "attention_scale": scalar and float(scalar) ** -0.5,
        "sliding_window": theirs.window,
        **({"layer_types": kinds(theirs)} if theirs.window else {}),
    }


def norm_position(theirs: SimpleNamespace) -> str:
    if not theirs.norm_1:
        return "inside"
    return "both" if theirs.post_attention_norm else "pre"


def residual_of(theirs: SimpleNamespace) -> str | None:
    if not theirs.parallel_residual:
        return None
    return "shared" if theirs.shared_attention_norm else "own"


def kinds(theirs: SimpleNamespace) -> list[str]:
    return ["sliding_attention" if slides else "full_attention" for slides in theirs.slides]


def rope_of(theirs: SimpleNamespace) -> Fields:
    rope = {"rope_theta": float(theirs.rope_base), "rope_type": "default"}
    rope["partial_rotary_factor"] = float(theirs.rotary_percentage)
    adjusted = dict(theirs.rope_adjustments or {})
    if original := adjusted.pop("original_max_seq_len", None):
        scaling = {"rope_type": "llama3", "original_max_position_embeddings": original, **adjusted}
    else:
        scaling = linear_scaling(theirs.rope_condense_ratio * adjusted.get("factor", 1.0))
    if theirs.rope_local_base_freq is None or not theirs.window:
        return rope | scaling
    local = rope | {"rope_theta": float(theirs.rope_local_base_freq)}
    return {
        "full_attention": rope | scaling,
        "sliding_attention": local | linear_scaling(theirs.rope_condense_ratio),
    }


def linear_scaling(factor: float) -> Fields:
    return {} if factor == 1 else {"rope_type": "linear", "factor": float(factor)}


def mixture_to_ours(theirs: SimpleNamespace) -> Fields:
    is_grouped = bool(theirs.n_expert_groups)
    return {
        **to_ours(theirs),
        "moe_intermediate_size": theirs.moe_intermediate_size,
        "num_experts": theirs.n_expert,
        "num_experts_per_tok": theirs.n_expert_per_token,
        "mlp_only_layers": list(range(theirs.first_k_dense_replace or 0)) or None,
        "shared_expert_intermediate_size": theirs.moe_intermediate_size
        * (theirs.n_shared_expert or 0)
        or None,
        "shared_expert_gate": False,
        "scoring_func": "sigmoid" if is_grouped else "softmax",
        "router_bias": is_grouped,
        "norm_topk_prob": theirs.norm_topk_prob if is_grouped else True,
        "routed_scaling_factor": theirs.routed_scaling_factor,
        "n_group": theirs.n_expert_groups or 1,
        "topk_group": theirs.n_topk_groups or 1,
        "router_aux_loss_coef": 0.0,  # LitGPT has no balance loss
    }


litgpt = partial(
    PlainFormat,
    reference=LitGPT,
    sizes=sizes,
    settings=SETTINGS,
    marks=(),
    opener=open_folder,
    is_described=True,
)
FORMATS = (
    litgpt(
        name="litgpt",
        remark="LitGPT's folder, whose model_config.yaml holds all settings",
        released="LitGPT, pretrained or finetuned",
        rules=rules,
        config_to_ours=to_ours,
        our_classes=DECODER,
        in_folder=is_dense,
    ),
    litgpt(
        name="litgpt-moe",
        remark="LitGPT's folder of a mixture of experts (LLaMAMoE)",
        released="LitGPT's Mixtral and Qwen3 mixtures",
        rules=mixture_rules,
        config_to_ours=mixture_to_ours,
        our_classes=MIXTURE,
        in_folder=is_mixture,
    ),
)
