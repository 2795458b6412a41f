"""StableLM: Llama with LayerNorm that rotates a part of each head.

Attention may stand beside the MLP behind one norm. StableLM-2-12B, which has a norm for each head,
is refused.
"""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import require, require_one_of
from ...engine.rotations import part_of_heads
from ...engine.rules import Rule
from ..shared import (
    LAYER,
    LAYER_NORM_FIELDS,
    LLAMA_FIXED,
    LLAMA_RULES,
    decoder_format,
    refuse_other_head_sizes,
    with_its_part,
)

RULES = (
    *LLAMA_RULES,
    Rule(f"{LAYER}.self_attn_norm.bias", f"{LAYER}.input_layernorm.bias"),
    Rule(f"{LAYER}.mlp_norm.bias", f"{LAYER}.post_attention_layernorm.bias"),
    Rule("model.norm.bias", "model.norm.bias"),
)
FIELDS = FieldMap(
    "StableLM",
    {**LAYER_NORM_FIELDS, "use_qkv_bias": "attention_bias", "hidden_dropout": "dropout"},
    {**LLAMA_FIXED, "norm_type": "layernorm", "attention_output_bias": False, "mlp_bias": False},
    rotation=part_of_heads,
    has_head_dim=False,
)


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", qk_layernorm=False)
    refuse_other_head_sizes(theirs)
    parallel = "shared" if theirs.use_parallel_residual else None
    return {**FIELDS.to_ours(theirs), "parallel_residual": parallel}


def to_theirs(ours: Config) -> Fields:
    fields = with_its_part(FIELDS.to_theirs(ours))
    require_one_of(ours, "StableLM", parallel_residual=("shared", None))
    return {**fields, "use_parallel_residual": ours.parallel_residual == "shared"}


FORMATS = (
    decoder_format(
        "stablelm",
        "StableLm",
        to_ours,
        to_theirs,
        released="StableLM 3B, StableLM Zephyr 3B, StableLM 2 1.6B",
        rules=RULES,
    ),
)
