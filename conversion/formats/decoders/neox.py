"""GPT-NeoX (Pythia): attention beside the MLP, each behind a norm of its own.

Files call the head embed_out, transformers' model calls it lm_head.
"""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import require_one_of, same, without
from ...engine.rotations import any_part_of_heads
from ...engine.rules import Rule, linear, omitted
from ..shared import (
    LAYER,
    LAYER_NORM_FIELDS,
    NEOX_FIXED,
    NO_GROUPS,
    ONE_BIAS_FOR_ATTENTION,
    causal_masks,
    decoder_format,
    megatron_branches,
    refuse_other_head_sizes,
)

THEIRS = "gpt_neox.layers.{i}"
RULES = (
    Rule("lm_head.weight", "embed_out.weight"),
    Rule("model.embed_tokens.weight", "gpt_neox.embed_in.weight"),
    *linear(f"{LAYER}.self_attn_norm", f"{THEIRS}.input_layernorm"),
    *omitted(megatron_branches(THEIRS, "attention"), "lm_head.weight"),
    *linear(f"{LAYER}.mlp_norm", f"{THEIRS}.post_attention_layernorm"),
    *linear("model.norm", "gpt_neox.final_layer_norm"),
)
IGNORED = {
    **causal_masks(f"{THEIRS}.attention"),
    f"{THEIRS}.attention.rotary_emb.inv_freq": "computed from rope_parameters",
}
FIELDS = FieldMap(
    "GPT-NeoX",
    {
        **without(LAYER_NORM_FIELDS, "num_key_value_heads"),
        **same("attention_bias"),
        "hidden_dropout": "dropout",
    },
    {**NEOX_FIXED, "mlp_bias": True},
    {**NO_GROUPS, **ONE_BIAS_FOR_ATTENTION},
    any_part_of_heads,
    has_head_dim=False,
)


def to_ours(theirs: Config) -> Fields:
    refuse_other_head_sizes(theirs)
    parallel = "own" if theirs.use_parallel_residual else None
    return {**FIELDS.to_ours(theirs), "parallel_residual": parallel}


def to_theirs(ours: Config) -> Fields:
    fields = FIELDS.to_theirs(ours)
    require_one_of(ours, "GPT-NeoX", parallel_residual=("own", None))
    return {**fields, "use_parallel_residual": ours.parallel_residual == "own"}


FORMATS = (
    decoder_format(
        "gpt_neox", "GPTNeoX", to_ours, to_theirs, "GPT-NeoX 20B, Pythia", RULES, IGNORED
    ),
)
