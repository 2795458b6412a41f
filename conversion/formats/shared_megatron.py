"""What the layers of BLOOM, Falcon and NeoX are called, all of which began in Megatron."""

from ..engine.rules import Rule, linear
from ..engine.transforms import InterleavedHeads

OURS = "model.layers.{i}"


def branches(layer: str, attention: str) -> tuple[Rule, ...]:
    """Rules for attention and the MLP of a layer of theirs, and for the head."""
    return (
        *(
            Rule(
                tuple(f"{OURS}.self_attn.{x}_proj.{kind}" for x in "qkv"),
                f"{layer}.{attention}.query_key_value.{kind}",
                InterleavedHeads(),
            )
            for kind in ("weight", "bias")
        ),
        *linear(f"{OURS}.self_attn.o_proj", f"{layer}.{attention}.dense"),
        *linear(f"{OURS}.mlp.up_proj", f"{layer}.mlp.dense_h_to_4h"),
        *linear(f"{OURS}.mlp.down_proj", f"{layer}.mlp.dense_4h_to_h"),
        Rule("lm_head.weight", "lm_head.weight"),
    )
