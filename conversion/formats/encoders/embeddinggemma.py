"""EmbeddingGemma: Gemma 3 that attends to both sides, without a head.

The modules that make one vector of a text stand beside it, in sentence-transformers' layout.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import ENCODER, carry, inverted, layer_types_of, require, same
from ...engine.heads import BASE, FormatWithHeads, Head
from ...engine.rotations import full_rotations, query_scalar
from ...engine.rules import omitted
from ..shared import GEMMA2_RULES
from ..shared_encoders import SHARED_FIELDS, more_ids

# theirs → ours
FIELDS = {
    **SHARED_FIELDS,
    **same("intermediate_size", "num_key_value_heads", "head_dim", "rms_norm_eps"),
    **same("attention_bias"),
    "hidden_activation": "hidden_act",
}
FIXED = {
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
        **FIXED,
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
    # Theirs is given both sides together and keeps one, with the token itself.
    window = {"sliding_window": 2 * (ours.sliding_window - 1)} if ours.sliding_window else {}
    return {
        **carry(ours, inverted(FIELDS)),
        **more_ids(ours),
        **window,
        "use_bidirectional_attention": True,
        "attention_dropout": ours.attention_dropout,
        "layer_types": layer_types_of(ours),
        "query_pre_attn_scalar": query_scalar(ours, "EmbeddingGemma"),
        "rope_parameters": full_rotations(ours, "EmbeddingGemma"),
    }


FORMATS = (
    FormatWithHeads(
        "embeddinggemma",
        omitted(GEMMA2_RULES, "lm_head.weight"),
        to_ours,
        to_theirs,
        ("Gemma3TextConfig", "Gemma3TextModel"),
        ENCODER,
        prefix="model",
        released="EmbeddingGemma",
        heads={"Gemma3TextModel": Head("Gemma3TextModel", BASE)},
    ),
)
