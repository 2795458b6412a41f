"""Granite 3: Llama with a number before the scores, the branches, the embeddings and the logits."""

from ...engine.aliases import Config, Fields
from ...engine.format import carry, inverted, require
from ...engine.rotations import full_rotation
from .llama import LIKE_LLAMA, SAME_FIELDS, head_size, llama_format

# theirs → ours
FIELDS = {
    **{name: name for name in (*SAME_FIELDS, "attention_bias", "mlp_bias")},
    "residual_multiplier": "residual_multiplier",
    "attention_multiplier": "attention_scale",
}
FIXED = {
    name: value
    for name, value in LIKE_LLAMA.items()
    if name not in ("scale_embedding", "logit_scale")
}


def to_ours(theirs: Config) -> Fields:
    factor = theirs.embedding_multiplier
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "head_dim": head_size(theirs),
        "attention_output_bias": theirs.attention_bias,
        "scale_embedding": False if factor == 1 else factor,
        "logit_scale": 1 / theirs.logits_scaling,
        "rope_parameters": full_rotation(theirs, "Granite"),
    }


def to_theirs(ours: Config) -> Fields:
    is_root = ours.scale_embedding is True
    require(ours, "Granite", **FIXED, attention_output_bias=ours.attention_bias)
    return {
        **carry(ours, inverted(FIELDS)),
        "attention_multiplier": ours.attention_scale or ours.head_dim**-0.5,
        "embedding_multiplier": ours.hidden_size**0.5 if is_root else ours.scale_embedding or 1.0,
        "logits_scaling": float(f"{1 / ours.logit_scale:.15g}"),  # 7.2 comes back as 7.2
        "head_dim": ours.head_dim,
        "rope_parameters": full_rotation(ours, "Granite"),
    }


FORMATS = (llama_format("granite", "Granite", to_ours, to_theirs, released="Granite 3"),)
