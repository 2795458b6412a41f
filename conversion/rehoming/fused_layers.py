"""Code that keeps queries, keys and values in one tensor, as Falcon, ChatGLM and Phi do."""

from ..engine.aliases import Fields
from ..engine.rules import Rule, linear, linears
from ..engine.transforms import Split, SplitHeads
from .renaming import Renaming
from .shared_names import EMBEDDINGS, FREQUENCIES, HEAD, LAYER, NORM, attention, rotation

FALCON = Renaming(
    "falcon",
    ("RefinedWebModel", "RefinedWeb"),
    {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "num_kv_heads": "n_head_kv"},
    computed=lambda theirs: {"new_decoder_architecture": "n_head_kv" in theirs},
    dropped={"transformer.h.{i}.self_attention.rotary.inv_freq": "frequencies"},
)

QWEN_BLOCK = "transformer.h.{i}"
QWEN = Renaming(
    "qwen2",
    ("qwen",),
    {
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_key_value_heads": "n_head",
        "rms_norm_eps": "layer_norm_epsilon",
        "max_position_embeddings": "seq_length",
    },
    (
        Rule(EMBEDDINGS, "transformer.wte.weight"),
        Rule(attention(), f"{QWEN_BLOCK}.attn.c_attn.weight", Split(3)),
        Rule(attention("bias"), f"{QWEN_BLOCK}.attn.c_attn.bias", Split(3)),
        Rule(f"{LAYER}.self_attn.o_proj.weight", f"{QWEN_BLOCK}.attn.c_proj.weight"),
        Rule(f"{LAYER}.input_layernorm.weight", f"{QWEN_BLOCK}.ln_1.weight"),
        Rule(f"{LAYER}.post_attention_layernorm.weight", f"{QWEN_BLOCK}.ln_2.weight"),
        Rule(f"{LAYER}.mlp.up_proj.weight", f"{QWEN_BLOCK}.mlp.w1.weight"),
        Rule(f"{LAYER}.mlp.gate_proj.weight", f"{QWEN_BLOCK}.mlp.w2.weight"),
        Rule(f"{LAYER}.mlp.down_proj.weight", f"{QWEN_BLOCK}.mlp.c_proj.weight"),
        Rule(NORM, "transformer.ln_f.weight"),
    ),
    sizes={
        "vocab_size": ("transformer.wte.weight", 0),
        "hidden_size": ("transformer.wte.weight", 1),
        "intermediate_size": ("transformer.h.0.mlp.w1.weight", 0),
    },
    required={"rotary_pct": 1.0, "no_bias": True},
    dropped=FREQUENCIES,
    limits={
        "use_dynamic_ntk": "use_dynamic_ntk: beyond its length the old code turns other angles",
        "use_logn_attn": "use_logn_attn: beyond its length the old code scales queries",
    },
    computed=lambda theirs: rotation(theirs.get("rotary_emb_base", 10000)),
)


def glm_fields(theirs: Fields) -> Fields:
    heads = theirs["num_attention_heads"]
    grouped = theirs.get("multi_query_attention")
    return {
        "num_key_value_heads": theirs["multi_query_group_num"] if grouped else heads,
        "hidden_act": "silu",
        **rotation(10000 * (theirs.get("rope_ratio") or 1), 0.5),
    }


GLM_LAYER = "transformer.encoder.layers.{i}"
GLM = Renaming(
    "glm",
    ("chatglm",),
    {
        "num_hidden_layers": "num_layers",
        "head_dim": "kv_channels",
        "intermediate_size": "ffn_hidden_size",
        "rms_norm_eps": "layernorm_epsilon",
        "attention_bias": "add_qkv_bias",
        "vocab_size": "padded_vocab_size",
        "max_position_embeddings": "seq_length",
    },
    (
        Rule(EMBEDDINGS, "transformer.embedding.word_embeddings.weight"),
        Rule(attention(), f"{GLM_LAYER}.self_attention.query_key_value.weight", SplitHeads()),
        Rule(attention("bias"), f"{GLM_LAYER}.self_attention.query_key_value.bias", SplitHeads()),
        Rule(f"{LAYER}.self_attn.o_proj.weight", f"{GLM_LAYER}.self_attention.dense.weight"),
        Rule(f"{LAYER}.input_layernorm.weight", f"{GLM_LAYER}.input_layernorm.weight"),
        Rule(
            f"{LAYER}.post_attention_layernorm.weight",
            f"{GLM_LAYER}.post_attention_layernorm.weight",
        ),
        Rule(f"{LAYER}.mlp.gate_up_proj.weight", f"{GLM_LAYER}.mlp.dense_h_to_4h.weight"),
        Rule(f"{LAYER}.mlp.down_proj.weight", f"{GLM_LAYER}.mlp.dense_4h_to_h.weight"),
        Rule(NORM, "transformer.encoder.final_layernorm.weight"),
        Rule(HEAD, "transformer.output_layer.weight"),
    ),
    required={
        "rmsnorm": True,
        "apply_residual_connection_post_layernorm": False,
        "add_bias_linear": False,
        "post_layer_norm": True,
        "pre_seq_len": None,
    },
    dropped=FREQUENCIES,
    computed=glm_fields,
    other_words=("position_encoding_2d",),  # the first ChatGLM
)

PHI_FIELDS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
}


def phi_fields(theirs: Fields) -> Fields:
    part = theirs["rotary_dim"] * theirs["n_head"] / theirs["n_embd"]
    return {"qk_layernorm": False, **rotation(10000, part)}


def phi_rules(block: str) -> tuple[Rule, ...]:
    return (
        Rule(attention(), f"{block}.mixer.Wqkv.weight", Split(3)),
        Rule(attention("bias"), f"{block}.mixer.Wqkv.bias", Split(3)),
        *linears(
            LAYER,
            block,
            {
                "self_attn.dense": "mixer.out_proj",
                "mlp.fc1": "mlp.fc1",
                "mlp.fc2": "mlp.fc2",
                "input_layernorm": "ln",
            },
        ),
    )


def sequential_phi(theirs: Fields) -> tuple[Rule, ...]:
    last = theirs["n_layer"] + 1
    return (
        *linear("model.final_layernorm", f"layers.{last}.ln"),
        *linear("lm_head", f"layers.{last}.linear"),
    )


PHI = (
    Renaming(
        "phi",
        ("mixformer-sequential",),
        PHI_FIELDS,
        (Rule(EMBEDDINGS, "layers.0.wte.weight"), *phi_rules("layers.{i+1}")),
        sizes={
            "vocab_size": ("layers.0.wte.weight", 0),
            "intermediate_size": ("layers.1.mlp.fc1.weight", 0),
        },
        dropped={"layers.{i}.mixer.rotary_emb.inv_freq": "frequencies"},
        computed=phi_fields,
        numbered=sequential_phi,
    ),
    Renaming(
        "phi",
        ("phi-msft",),
        PHI_FIELDS,
        (
            Rule(EMBEDDINGS, "transformer.embd.wte.weight"),
            *phi_rules("transformer.h.{i}"),
            *linear("model.final_layernorm", "lm_head.ln"),
            *linear("lm_head", "lm_head.linear"),
        ),
        sizes={
            "vocab_size": ("transformer.embd.wte.weight", 0),
            "intermediate_size": ("transformer.h.0.mlp.fc1.weight", 0),
        },
        dropped={"transformer.h.{i}.mixer.rotary_emb.inv_freq": "frequencies"},
        computed=phi_fields,
    ),
)

MPT_ATTENTION = {
    *("attn_type", "attn_impl", "clip_qkv", "softmax_scale", "prefix_lm", "qk_ln"),
    *("attn_uses_sequence_id", "alibi", "alibi_bias_max"),
}


def mpt_fields(theirs: Fields) -> Fields:
    attention = theirs.get("attn_config") or {}
    kept = {name: value for name, value in attention.items() if name in MPT_ATTENTION}
    return {"attn_config": {**kept, "attn_pdrop": int(attention.get("attn_pdrop") or 0)}}


MPT = Renaming(
    "mpt",
    ("mpt",),
    required={"no_bias": True, "logit_scale": None, "expansion_ratio": 4},
    computed=mpt_fields,
)

NOMIC = Renaming(
    "nomic_bert",
    ("nomic_bert",),
    {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "layer_norm_eps": "layer_norm_epsilon",
    },
    fixed={"hidden_act": "silu", "pad_token_id": 0},
    sizes={
        "vocab_size": ("embeddings.word_embeddings.weight", 0),
        "intermediate_size": ("encoder.layers.0.mlp.fc11.weight", 0),
    },
    required={
        "activation_function": "swiglu",
        "prenorm": False,
        "parallel_block": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "qkv_proj_bias": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "use_rms_norm": False,
        "causal": False,
    },
    dropped={
        "pooler.dense.weight": "a pooler, which no answer needs",
        "pooler.dense.bias": "a pooler, which no answer needs",
    },
    computed=lambda theirs: rotation(theirs.get("rotary_emb_base", 10000)),
)
