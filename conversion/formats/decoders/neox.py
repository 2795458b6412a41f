"""GPT-NeoX (Pythia): attention beside the MLP, each behind a norm of its own.

Released files call the head embed_out, transformers' model calls it lm_head.
"""

from ...engine.aliases import Config, Fields
from ...engine.format import (
    DECODER,
    Format,
    carry,
    choose,
    inverted,
    plain_attention_scale,
    require,
    whole_heads,
)
from ...engine.rules import Rule, linear
from ..shared_megatron import OURS, branches
from .llama import ALL_OF_THEM
from .stablelm import FIELDS as STABLELM_FIELDS
from .stablelm import refuse_other_head_sizes, with_part_of_heads

THEIRS = "gpt_neox.layers.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "gpt_neox.embed_in.weight"),
    *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.input_layernorm"),
    *branches(THEIRS, "attention"),
    *linear(f"{OURS}.mlp_norm", f"{THEIRS}.post_attention_layernorm"),
    *linear("model.norm", "gpt_neox.final_layer_norm"),
)
IGNORED = {
    f"{THEIRS}.attention.bias": "the causal mask, which old checkpoints hold",
    f"{THEIRS}.attention.masked_bias": "the score of a hidden key, which old checkpoints hold",
    f"{THEIRS}.attention.rotary_emb.inv_freq": "computed from rope_parameters",
}

# theirs → ours
FIELDS = {
    name: ours
    for name, ours in STABLELM_FIELDS.items()
    if name not in ("num_key_value_heads", "use_qkv_bias")
}
FIXED = {
    **ALL_OF_THEM,
    "norm_type": "layernorm",
    "qk_norm": False,
    "mlp_type": "plain",
    "mlp_bias": True,
    "sliding_window": None,
}


def to_ours(theirs: Config) -> Fields:
    refuse_other_head_sizes(theirs)
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "num_key_value_heads": theirs.num_attention_heads,
        "parallel_residual": "own" if theirs.use_parallel_residual else None,
        **dict.fromkeys(("attention_bias", "attention_output_bias"), theirs.attention_bias),
        "rope_parameters": with_part_of_heads(theirs),
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "GPT-NeoX", **FIXED, attention_output_bias=ours.attention_bias)
    choose(ours, "GPT-NeoX", parallel_residual=("own", None))
    whole_heads(ours, "GPT-NeoX")
    plain_attention_scale(ours, "GPT-NeoX")
    return {
        **carry(ours, inverted(FIELDS)),
        "use_parallel_residual": ours.parallel_residual == "own",
        "attention_bias": ours.attention_bias,
        "rope_parameters": with_part_of_heads(ours),
    }


FORMATS = (
    Format(
        "gpt_neox",
        RULES,
        to_ours,
        to_theirs,
        ("GPTNeoXConfig", "GPTNeoXForCausalLM"),
        DECODER,
        IGNORED,
        names_in_files={"lm_head.weight": "embed_out.weight"},
        released="GPT-NeoX 20B, Pythia",
    ),
)
