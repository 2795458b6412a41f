"""ModernBERT: rotary positions and windows, a frequency for each; gated, fused, mostly unbiased."""

from ...engine.aliases import Config, Fields
from ...engine.format import carry, inverted, layer_types_of, require, same
from ...engine.rotations import full_rotations
from ...engine.rules import Rule, fused, linear, linears
from ...engine.transforms import Split
from ..shared import LAYER, QKV
from ..shared_encoders import (
    CLASSIFIER,
    SHARED_FIELDS,
    encoder_format,
    heads_of,
    more_ids,
    transform,
)

MODULES = {
    "self_attn_norm": "attn_norm",
    "self_attn.o_proj": "attn.Wo",
    "mlp_norm": "mlp_norm",
    "mlp.down_proj": "mlp.Wo",
}
BODY = (
    Rule("model.embed_tokens.weight", "model.embeddings.tok_embeddings.weight"),
    *linear("model.embed_norm", "model.embeddings.norm"),
    *linears(LAYER, LAYER, MODULES),
    *fused((f"{LAYER}.{name}" for name in QKV), f"{LAYER}.attn.Wqkv", Split(3)),
    # The gate, which is activated, comes first.
    *fused((f"{LAYER}.mlp.{x}_proj" for x in ("gate", "up")), f"{LAYER}.mlp.Wi", Split(2)),
    *linear("model.norm", "model.final_norm"),
)
HEAD = ("head.dense", "head.norm")
CLASSES = (*transform(*HEAD, within="classifier"), *CLASSIFIER)
# ours → theirs
FIELDS = {
    **SHARED_FIELDS,
    **same("intermediate_size", "attention_bias", "mlp_bias", "attention_dropout"),
    **same("cls_token_id", "sep_token_id", "classifier_pooling"),
    "hidden_act": "hidden_activation",
    "layer_norm_eps": "norm_eps",
    "dropout": "mlp_dropout",
    "lm_head_bias": "decoder_bias",
    "head_bias": "classifier_bias",
    "head_act": "classifier_activation",
}
FIXED = {
    "position_embedding_type": "rotary",
    "norm_position": "pre",
    "final_norm": True,
    "embedding_norm": True,
    "first_attention_norm": False,
    "mlp_type": "gated",
    "classifier_norm": True,
}


def to_ours(theirs: Config) -> Fields:
    return {
        **FIXED,
        **carry(theirs, inverted(FIELDS)),
        **more_ids(theirs),
        "norm_type": "layernorm" if theirs.norm_bias else "layernorm_unbiased",
        "attention_output_bias": theirs.attention_bias,
        "classifier_act": theirs.classifier_activation,
        "layer_types": list(theirs.layer_types),
        # Theirs counts both sides together, ours one side and the token itself.
        "sliding_window": theirs.local_attention // 2 + 1,
        "rope_parameters": full_rotations(theirs, "ModernBERT"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "ModernBERT", position_embedding_type="rotary")
    window = {"local_attention": 2 * (ours.sliding_window - 1)} if ours.sliding_window else {}
    return {
        **carry(ours, FIELDS),
        **more_ids(ours),
        **window,
        "norm_bias": ours.norm_type == "layernorm",
        "layer_types": layer_types_of(ours),
        "rope_parameters": full_rotations(ours, "ModernBERT"),
        "embedding_dropout": ours.dropout,
        "classifier_dropout": ours.dropout,
    }


HEADS = heads_of(
    "ModernBert",
    (*transform(*HEAD), *linear("lm_head", "decoder")),
    texts=CLASSES,
    tokens=CLASSES,
    answers=(*transform(*HEAD, within="qa_outputs"), *linear("qa_outputs.out_proj", "classifier")),
)
FORMATS = (
    encoder_format(
        "modernbert",
        "ModernBert",
        "model",
        BODY,
        to_ours,
        to_theirs,
        HEADS,
        "ModernBERT, GTE ModernBERT",
    ),
)
