"""ModernBERT: rotary positions and windows, a pace for each; gated, fused and mostly unbiased."""

from ...engine.aliases import Config, Fields
from ...engine.format import ENCODER, carry, inverted, require
from ...engine.heads import FormatWithHeads
from ...engine.rotations import full_rotations
from ...engine.rules import Rule, linear
from ...engine.transforms import Split
from ..decoders.llama import layer_types_of
from ..shared_encoders import CLASSIFIER, SHARED, heads_of, more_ids, transform, unread_fields

OURS, THEIRS = "model.layers.{i}", "model.layers.{i}"
BODY = (
    Rule("model.embed_tokens.weight", "model.embeddings.tok_embeddings.weight"),
    *linear("model.embed_norm", "model.embeddings.norm"),
    *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.attn_norm"),
    *(
        Rule(tuple(f"{OURS}.{name}.{kind}" for name in parts), f"{THEIRS}.{fused}.{kind}", Split(n))
        for fused, n, parts in (
            ("attn.Wqkv", 3, tuple(f"self_attn.{x}_proj" for x in "qkv")),
            ("mlp.Wi", 2, ("mlp.gate_proj", "mlp.up_proj")),  # the first is activated
        )
        for kind in ("weight", "bias")
    ),
    *linear(f"{OURS}.self_attn.o_proj", f"{THEIRS}.attn.Wo"),
    *linear(f"{OURS}.mlp_norm", f"{THEIRS}.mlp_norm"),
    *linear(f"{OURS}.mlp.down_proj", f"{THEIRS}.mlp.Wo"),
    *linear("model.norm", "model.final_norm"),
)
HEAD = ("head.dense", "head.norm")
CLASSES = (*transform(*HEAD, within="classifier"), *CLASSIFIER)
FIELDS = {
    **{name: name for name in (*SHARED, "intermediate_size", "attention_bias", "mlp_bias")},
    **{name: name for name in ("cls_token_id", "sep_token_id")},
    "hidden_act": "hidden_activation",
    "layer_norm_eps": "norm_eps",
    "dropout": "mlp_dropout",
    "attention_dropout": "attention_dropout",
    "lm_head_bias": "decoder_bias",
    "head_bias": "classifier_bias",
    "head_act": "classifier_activation",
    "classifier_pooling": "classifier_pooling",
}
ALL_OF_THEM = {
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
        **ALL_OF_THEM,
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


FORMATS = (
    FormatWithHeads(
        "modernbert",
        BODY,
        to_ours,
        to_theirs,
        ("ModernBertConfig", "ModernBertModel"),
        ENCODER,
        prefix="model",
        heads=heads_of(
            "ModernBert",
            (*transform(*HEAD), *linear("lm_head", "decoder")),
            texts=CLASSES,
            tokens=CLASSES,
            answers=(
                *transform(*HEAD, within="qa_outputs"),
                *linear("qa_outputs.out_proj", "classifier"),
            ),
        ),
        unread_fields=unread_fields,
        released="ModernBERT, GTE ModernBERT",
    ),
)
