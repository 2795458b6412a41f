"""What several formats share: the names and fields of Llama, GPT-2, Megatron and Marian.

No format imports another one. What only encoders share is in shared_encoders.py.
"""

from collections.abc import Callable

from ..engine.aliases import Config, Fields
from ..engine.field_map import FieldMap
from ..engine.format import BIASES, DECODER, Format, Table, require, same, without
from ..engine.models import Library
from ..engine.rotations import full_rotation
from ..engine.rules import Rule, fused, linear, linears, replaced, weights
from ..engine.transforms import InterleavedHeads, RotaryPairs, Split

LAYER = "model.layers.{i}"  # ours, and theirs in many formats
# Our modules in a layer.
QKV = tuple(f"self_attn.{x}_proj" for x in "qkv")
QKVO = (*QKV, "self_attn.o_proj")
GATED_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")

# Fields that nearly all configurations have by one name.
IDS = same("pad_token_id", "bos_token_id", "eos_token_id")
COMMON_FIELDS = {**same("vocab_size", "tie_word_embeddings", "use_cache"), **IDS}
# Values of ours that the layers of GPT-2 and of Llama have in common.
PRE_NORM = {
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": False,
    "lm_head_bias": False,
    "logit_scale": 1.0,
    "scale_embedding": False,
}
# Fields of ours that follow another one.
ONE_BIAS_FOR_ATTENTION = {"attention_output_bias": "attention_bias"}
ONE_BIAS_FOR_ALL = {**ONE_BIAS_FOR_ATTENTION, "mlp_bias": "attention_bias"}
NO_GROUPS = {"num_key_value_heads": "num_attention_heads"}

# Llama and its kin.
EMBEDDINGS = Rule("model.embed_tokens.weight", "model.embed_tokens.weight")
HEAD = Rule("lm_head.weight", "lm_head.weight")
LLAMA_RULES = (
    EMBEDDINGS,
    Rule(f"{LAYER}.self_attn_norm.weight", f"{LAYER}.input_layernorm.weight"),
    *linears(LAYER, LAYER, same(*QKVO)),
    *weights(LAYER, LAYER, same("self_attn.q_norm", "self_attn.k_norm")),
    Rule(f"{LAYER}.mlp_norm.weight", f"{LAYER}.post_attention_layernorm.weight"),
    *linears(LAYER, LAYER, same(*GATED_MLP)),
    Rule("model.norm.weight", "model.norm.weight"),
    HEAD,
)
LLAMA_IGNORED = {f"{LAYER}.self_attn.rotary_emb.inv_freq": "computed from rope_parameters"}
LLAMA_FIELDS = {
    **COMMON_FIELDS,
    **same(
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
        "hidden_act",
        "rms_norm_eps",
        "attention_dropout",
        "initializer_range",
    ),
}
LAYER_NORM_FIELDS = {**without(LLAMA_FIELDS, "rms_norm_eps"), **same("layer_norm_eps")}
LLAMA_FIXED_ANY_WINDOW = {
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    **PRE_NORM,
    "mlp_type": "gated",
}
LLAMA_FIXED = {**LLAMA_FIXED_ANY_WINDOW, "qk_norm": False, "sliding_window": None}
QWEN3_FIXED = {**LLAMA_FIXED_ANY_WINDOW, "qk_norm": True, "mlp_bias": False}
# Rotary attention behind LayerNorm, and an MLP without a gate.
NEOX_FIXED = {**LLAMA_FIXED, "norm_type": "layernorm", "mlp_type": "plain"}

# Models whose rotary positions pair neighbouring dimensions.
NEIGHBOURS = {"q": RotaryPairs("num_attention_heads"), "k": RotaryPairs("num_key_value_heads")}
NEIGHBOUR_RULES = replaced(
    LLAMA_RULES,
    *(
        Rule(f"{LAYER}.self_attn.{x}_proj.{kind}", f"{LAYER}.self_attn.{x}_proj.{kind}", pairs)
        for x, pairs in NEIGHBOURS.items()
        for kind in ("weight", "bias")
    ),
)
FUSED_GATE = Rule(
    tuple(f"{LAYER}.{name}.weight" for name in GATED_MLP[:2]),
    f"{LAYER}.mlp.gate_up_proj.weight",
    Split(2),
)
# Norms behind the branches of a layer, by the names of OLMo-2 and Gemma 2.
NORMS_BEHIND = weights(
    LAYER,
    LAYER,
    {"self_attn_output": "post_attention_layernorm", "mlp_output": "post_feedforward_layernorm"},
)
GEMMA2_RULES = (
    *replaced(
        LLAMA_RULES, Rule(f"{LAYER}.mlp_norm.weight", f"{LAYER}.pre_feedforward_layernorm.weight")
    ),
    *NORMS_BEHIND,
)

# One norm over all heads, as in OLMo-2.
NORMS_OF_ALL_HEADS = weights(
    LAYER, LAYER, {f"self_attn.{x}_norm.norm": f"self_attn.{x}_norm" for x in "qk"}
)

# GPT-2 and its kin.
GPT2_LAYER = "transformer.h.{i}"
GPT2_NORMS = {"self_attn_norm": "ln_1", "mlp_norm": "ln_2"}
GPT2_ENDS = (  # what stands before and behind the layers
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    *linear("model.norm", "transformer.ln_f"),
)
GPT2_FIXED = {
    "position_embedding_type": "learned",
    "norm_type": "layernorm",
    **PRE_NORM,
    "qk_norm": False,
    "mlp_type": "plain",
    **dict.fromkeys(BIASES, True),
    "sliding_window": None,
}
ALIBI = {"position_embedding_type": "none", "score_bias": "alibi"}


def causal_masks(attention: str) -> dict[str, str]:
    """Return the buffers of an attention module that old checkpoints hold, and what they are."""
    return {
        f"{attention}.bias": "the causal mask, which old checkpoints hold",
        f"{attention}.masked_bias": "the score of a hidden key, which old checkpoints hold",
    }


def megatron_branches(layer: str, attention: str) -> tuple[Rule, ...]:
    """Return rules for attention, MLP and head by the names of BLOOM, Falcon and GPT-NeoX."""
    names = {
        "self_attn.o_proj": f"{attention}.dense",
        "mlp.up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
    }
    queries_keys_values = [f"{LAYER}.{name}" for name in QKV]
    return (
        *fused(queries_keys_values, f"{layer}.{attention}.query_key_value", InterleavedHeads()),
        *linears(LAYER, layer, names),
        HEAD,
    )


def refuse_other_head_sizes(theirs: Config) -> None:
    """Refuse a head_dim that the configuration has no field for and half of the model reads."""
    if getattr(theirs, "head_dim", None) is not None:
        require(theirs, "hf_tformer", head_dim=theirs.hidden_size // theirs.num_attention_heads)


def with_its_part(fields: Fields) -> Fields:
    """Return fields that state the rotated part of a head a second time, outside the rotation.

    Without it and beside yarn, transformers 5.16 falls back to a default of its own.
    """
    part = fields["rope_parameters"]["partial_rotary_factor"]
    return {**fields, "partial_rotary_factor": part}


# Marian, and the decoders that fairseq trained.
MARIAN_LAYER = {
    **same(*QKV),
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn_norm": "self_attn_layer_norm",
    "mlp.up_proj": "fc1",
    "mlp.down_proj": "fc2",
    "mlp_norm": "final_layer_norm",
}
POST_NORM = {  # values of ours in Marian's layers
    "norm_type": "layernorm",
    "layer_norm_eps": 1e-5,
    "norm_position": "post",
    "final_norm": False,
    "qk_norm": False,
    "mlp_type": "plain",
    **dict.fromkeys((*BIASES, "lm_head_bias"), True),
    "logit_scale": 1.0,
}
SINUSOIDS = "sinusoids, computed where they are needed"
FAIRSEQ_SINUSOIDS = {
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "fairseq",
    "embedding_norm": False,
}
# Ids that a configuration may lack: PEGASUS has no bos_token_id, PLBart no decoder_start_token_id.
OPTIONAL_IDS = ("bos_token_id", "decoder_start_token_id")


def llama_field_map(
    format_name: str,
    *fields: str,
    fixed: Fields = LLAMA_FIXED,
    equal: dict[str, str] = ONE_BIAS_FOR_ATTENTION,
    rotation: Callable[[Config, str], Fields] = full_rotation,
) -> FieldMap:
    """Return the map of a format that has Llama's fields and a few more."""
    return FieldMap(format_name, {**LLAMA_FIELDS, **same(*fields)}, fixed, equal, rotation)


def decoder_format(
    name: str,
    prefix: str,
    config_to_ours: Callable[[Config], Fields],
    config_to_theirs: Callable[[Config], Fields],
    released: str,
    rules: Table = LLAMA_RULES,
    ignored: dict[str, str] = LLAMA_IGNORED,
    head: str = "ForCausalLM",
    our_classes: Library = DECODER,
    has_draft_layers: bool = False,
) -> Format:
    """Return the format of a decoder whose classes in transformers begin with `prefix`."""
    return Format(
        name,
        rules,
        config_to_ours,
        config_to_theirs,
        (f"{prefix}Config", f"{prefix}{head}"),
        our_classes,
        ignored,
        released=released,
        has_draft_layers=has_draft_layers,
    )
