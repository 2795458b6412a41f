"""T5, mT5 and UMT5: numbers for distances instead of positions, RMSNorm first, no biases.

T5 v1.1, Flan, ByT5, UL2, MADLAD and CodeT5 are t5 by their model_type. Their layers clamp what
overflows in float16 and ours do not: what was converted is to be run in bfloat16 or float32.
"""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import BIASES, SEQ2SEQ, carry, choose, inverted, require
from ...engine.heads import refuse_learned_activations
from ...engine.rules import Rule
from .marian import MAYBE
from .t5_library import HEAD, T5Format

STACKS = ("encoder", "decoder")
# our module → theirs, in a layer
SELF_ATTENTION = {
    "self_attn_norm": "0.layer_norm",
    **{f"self_attn.{x}_proj": f"0.SelfAttention.{x}" for x in "qkvo"},
}
CROSS_ATTENTION = {
    "cross_attn_norm": "1.layer_norm",
    **{f"cross_attn.{x}_proj": f"1.EncDecAttention.{x}" for x in "qkvo"},
}
PLAIN = {"up_proj": "wi", "down_proj": "wo"}
GATED = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}
DISTANCES = "layer.0.SelfAttention.relative_attention_bias.weight"
ONE_TABLE = ("score_bias.table.weight", f"block.0.{DISTANCES}")
TABLE_PER_LAYER = ("score_bias.tables.{i}.weight", f"block.{{i}}.{DISTANCES}")
IGNORED = {
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (
        "cross-attention counts no distances; old files hold a table all the same"
    )
}


def rules(theirs: Config, table: tuple[str, str]) -> tuple[Rule, ...]:
    mlp = GATED if theirs.is_gated_act else PLAIN
    return (
        Rule("model.shared.weight", "shared.weight"),
        Rule(HEAD, HEAD),
        *layer_rules("encoder", {**SELF_ATTENTION, **mlp_modules(1, mlp)}),
        *layer_rules("decoder", {**SELF_ATTENTION, **CROSS_ATTENTION, **mlp_modules(2, mlp)}),
        *(
            Rule(f"model.{stack}.{ours}", f"{stack}.{name}")
            for stack in STACKS
            for ours, name in (("norm.weight", "final_layer_norm.weight"), table)
        ),
    )


def layer_rules(stack: str, modules: dict[str, str]) -> tuple[Rule, ...]:
    ours, theirs = f"model.{stack}.layers.{{i}}", f"{stack}.block.{{i}}.layer"
    return tuple(
        Rule(f"{ours}.{module}.weight", f"{theirs}.{name}.weight")
        for module, name in modules.items()
    )


def mlp_modules(place: int, names: dict[str, str]) -> dict[str, str]:
    modules = {f"mlp.{ours}": f"{place}.DenseReluDense.{name}" for ours, name in names.items()}
    return {"mlp_norm": f"{place}.layer_norm", **modules}


# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "d_kv": "head_dim",
    "d_ff": "intermediate_size",
    "num_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": "num_attention_heads",
    "layer_norm_epsilon": "rms_norm_eps",
    "dropout_rate": "dropout",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "eos_token_id": "eos_token_id",
}
FIXED = {
    "position_embedding_type": "none",
    "norm_type": "rmsnorm",
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": False,
    "qk_norm": False,
    **dict.fromkeys((*BIASES, "lm_head_bias"), False),
    "attention_scale": 1.0,
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
}
RANGES = {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
# Whether the head reads states divided by the root of their size; None: T5Config says it. The
# others are as in transformers 5, which scales UMT5 though its files deny it (tie_word_embeddings).
IS_SCALED = {"t5": None, "mt5": False, "umt5": True}


def to_ours(theirs: Config, name: str) -> Fields:
    require(theirs, "hf_tformer", **RANGES)
    always = IS_SCALED[name]
    is_scaled = theirs.scale_decoder_outputs if always is None else always
    fields = {
        **carry(theirs, FIELDS),
        **{name: getattr(theirs, name, None) for name in MAYBE},
        **FIXED,
        "score_bias": SCORE_BIASES[name],
        "mlp_type": "gated" if theirs.is_gated_act else "plain",
        "hidden_act": theirs.dense_act_fn,
        "attention_dropout": theirs.dropout_rate,
        "logit_scale": theirs.d_model**-0.5 if is_scaled else 1.0,
        "initializer": "normal",
    }
    refuse_learned_activations(fields)
    return fields


def to_theirs(ours: Config, name: str) -> Fields:
    reader = CLASSES[name][0].removesuffix("Config")
    require(ours, reader, **FIXED, score_bias=SCORE_BIASES[name])
    require(ours, reader, num_key_value_heads=ours.num_attention_heads)
    require(ours, reader, value_head_dim=ours.head_dim)
    scales, always = {True: ours.hidden_size**-0.5, False: 1.0}, IS_SCALED[name]
    if always is None:
        choose(ours, reader, logit_scale=scales.values())
    else:
        require(ours, reader, logit_scale=scales[always])
    return {
        **carry(ours, inverted(FIELDS)),
        **carry(ours, MAYBE),
        "feed_forward_proj": feed_forward(ours, reader),
        "scale_decoder_outputs": ours.logit_scale != 1.0,  # read by T5Config alone
    }


def feed_forward(ours: Config, reader: str) -> str:
    """In their words, where the gate that is called gelu is gelu_new."""
    if ours.mlp_type != "gated":
        return ours.hidden_act
    if ours.hidden_act == "gelu":
        raise ConversionError(
            f"hidden_act is 'gelu' beside mlp_type 'gated', which {reader} takes for 'gelu_new': "
            "only another activation converts"
        )
    return f"gated-{'gelu' if ours.hidden_act == 'gelu_new' else ours.hidden_act}"


CLASSES = {
    name: (f"{prefix}Config", f"{prefix}ForConditionalGeneration")
    for name, prefix in (("t5", "T5"), ("mt5", "MT5"), ("umt5", "UMT5"))
}
SCORE_BIASES = {"t5": "relative", "mt5": "relative", "umt5": "relative_per_layer"}
TABLES = {"relative": ONE_TABLE, "relative_per_layer": TABLE_PER_LAYER}
RELEASED = {
    "t5": "T5, T5 v1.1, Flan-T5, ByT5, UL2, Flan-UL2, MADLAD-400, CodeT5",
    "mt5": "mT5, mT0",
    "umt5": "UMT5",
}
FORMATS = tuple(
    T5Format(
        name,
        partial(rules, table=TABLES[SCORE_BIASES[name]]),
        partial(to_ours, name=name),
        partial(to_theirs, name=name),
        classes,
        SEQ2SEQ,
        IGNORED,
        released=RELEASED[name],
    )
    for name, classes in CLASSES.items()
)
