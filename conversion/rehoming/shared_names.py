"""What the tables of renamings share: names of today's layers, and plain rotations."""

from ..engine.aliases import Fields

LAYER = "model.layers.{i}"
EMBEDDINGS, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
FREQUENCIES = {
    "model.layers.{i}.self_attn.rotary_emb.inv_freq": "frequencies, which are computed",
    "transformer.rotary_pos_emb.inv_freq": "frequencies, which are computed",
    "transformer.rotary_emb.inv_freq": "frequencies, which are computed",
}


def attention(part: str = "weight") -> tuple[str, ...]:
    """Return the names of queries, keys and values."""
    return tuple(f"{LAYER}.self_attn.{x}_proj.{part}" for x in "qkv")


def rotation(theta: float, part: float = 1.0) -> Fields:
    return {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(theta),
            "partial_rotary_factor": part,
        }
    }
