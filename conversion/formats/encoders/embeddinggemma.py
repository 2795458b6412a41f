"""EmbeddingGemma: Gemma 3 that sees both sides, alone in its folder; what makes a vector of a text
stands beside it, as sentence-transformers has it."""

from ...engine.aliases import Config, Fields
from ...engine.format import ENCODER, carry, inverted, require
from ...engine.heads import FormatWithHeads, Head
from ...engine.rotations import full_rotations
from ..decoders.gemma import NORMS_AROUND, scalar_of_queries
from ..decoders.llama import layer_types_of
from ..shared_encoders import BASE, SHARED, more_ids, unread_fields

BODY = tuple(rule for rule in NORMS_AROUND if rule.ours != "lm_head.weight")
# theirs → ours
FIELDS = {
    **{name: name for name in (*SHARED, "intermediate_size", "num_key_value_heads", "head_dim")},
    **{name: name for name in ("rms_norm_eps", "attention_bias")},
    "hidden_activation": "hidden_act",
}
ALL_OF_THEM = {
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm_offset",
    "norm_position": "both",
    "final_norm": True,
    "qk_norm": True,
    "scale_embedding": True,
    "mlp_type": "gated",
    "mlp_bias": False,
}


def to_ours(theirs: Config) -> Fields:
    return {
        **ALL_OF_THEM,
        **carry(theirs, FIELDS),
        **more_ids(theirs),
        "attention_dropout": theirs.attention_dropout or 0.0,
        "attention_output_bias": theirs.attention_bias,
        "attention_scale": theirs.query_pre_attn_scalar**-0.5,
        "layer_types": list(theirs.layer_types),
        "sliding_window": theirs.sliding_window,
        "rope_parameters": full_rotations(theirs, "EmbeddingGemma"),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "EmbeddingGemma", position_embedding_type="rotary")
    # Theirs is told of both sides together and keeps one, with the token itself.
    window = {"sliding_window": 2 * (ours.sliding_window - 1)} if ours.sliding_window else {}
    return {
        **carry(ours, inverted(FIELDS)),
        **more_ids(ours),
        **window,
        "use_bidirectional_attention": True,
        "attention_dropout": ours.attention_dropout,
        "layer_types": layer_types_of(ours),
        "query_pre_attn_scalar": scalar_of_queries(ours, "EmbeddingGemma"),
        "rope_parameters": full_rotations(ours, "EmbeddingGemma"),
    }


FORMATS = (
    FormatWithHeads(
        "embeddinggemma",
        BODY,
        to_ours,
        to_theirs,
        ("Gemma3TextConfig", "Gemma3TextModel"),
        ENCODER,
        prefix="model",
        released="EmbeddingGemma",
        heads={"Gemma3TextModel": Head("Gemma3TextModel", BASE)},
        unread_fields=unread_fields,
    ),
)
