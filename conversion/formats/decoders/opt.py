"""OPT, BioGPT and XGLM: fairseq's decoders, with learned positions from row two on, or sinusoids.

XGLM's model counts positions from two, whatever the padding id; fairseq and ours begin behind that
id. In the releases it is one, so the positions are equal.
"""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import BIASES, require, require_one_of, same, without
from ...engine.rules import Rule, linear, linears, omitted
from ...engine.transforms import DropRows
from ..shared import (
    COMMON_FIELDS,
    FAIRSEQ_SINUSOIDS,
    GPT2_FIXED,
    LAYER,
    MARIAN_LAYER,
    NO_GROUPS,
    ONE_BIAS_FOR_ALL,
    SINUSOIDS,
    decoder_format,
)


def rules(stack: str, final_norm: str, head: str) -> tuple[Rule, ...]:
    """Return the rules of a stack: all hold the same modules but for the last norm and the head."""
    return (
        Rule("model.embed_tokens.weight", f"{stack}.embed_tokens.weight"),
        Rule("model.positions.weight", f"{stack}.embed_positions.weight", DropRows(2)),
        *linears(LAYER, f"{stack}.layers.{{i}}", MARIAN_LAYER),
        *linear("model.norm", f"{stack}.{final_norm}"),
        Rule("lm_head.weight", head),
    )


FIXED = {
    "layer_norm_eps": 1e-5,  # BioGPT has a field for it, which its model does not read
    **without(GPT2_FIXED, "scale_embedding"),
}
FIELDS = {
    **COMMON_FIELDS,
    **same("max_position_embeddings", "hidden_size", "num_attention_heads", "num_hidden_layers"),
}
FAIRSEQ_FIELDS = {
    "ffn_dim": "intermediate_size",
    "activation_function": "hidden_act",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "initializer_range",
}
OPT = FieldMap(
    "OPT",
    {**FIELDS, **FAIRSEQ_FIELDS, "enable_bias": "attention_bias"},
    {**without(FIXED, "norm_position", "final_norm", *BIASES), "scale_embedding": False},
    {**NO_GROUPS, **ONE_BIAS_FOR_ALL},
    has_head_dim=False,
)
BIOGPT = FieldMap(
    "BioGPT",
    {
        **FIELDS,
        **same("intermediate_size", "hidden_act", "initializer_range", "scale_embedding"),
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    FIXED,
    NO_GROUPS,
    has_head_dim=False,
)
XGLM = FieldMap(
    "XGLM",
    {
        **COMMON_FIELDS,
        **FAIRSEQ_FIELDS,
        "d_model": "hidden_size",
        "num_layers": "num_hidden_layers",
        "attention_heads": "num_attention_heads",
        "max_position_embeddings": "max_position_embeddings",
        "scale_embedding": "scale_embedding",
    },
    {**FIXED, **FAIRSEQ_SINUSOIDS, "pad_token_id": 1},
    NO_GROUPS,
    has_head_dim=False,
)


def opt_to_ours(theirs: Config) -> Fields:
    require(
        theirs,
        "hf_tformer",
        word_embed_proj_dim=theirs.hidden_size,
        layer_norm_elementwise_affine=True,
    )
    is_pre = theirs.do_layer_norm_before
    return {
        **OPT.to_ours(theirs),
        "norm_position": "pre" if is_pre else "post",
        "final_norm": is_pre and not theirs._remove_final_layer_norm,
    }


def opt_to_theirs(ours: Config) -> Fields:
    fields = OPT.to_theirs(ours)
    require_one_of(ours, "OPT", norm_position=("pre", "post"))
    is_pre = ours.norm_position == "pre"
    if not is_pre:
        require(ours, "OPT", final_norm=False)
    return {
        **fields,
        "do_layer_norm_before": is_pre,
        "_remove_final_layer_norm": is_pre and not ours.final_norm,
    }


def xglm_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", pad_token_id=1, add_cross_attention=False)
    return XGLM.to_ours(theirs)


FORMATS = (
    decoder_format(
        "opt",
        "OPT",
        opt_to_ours,
        opt_to_theirs,
        "OPT, all sizes but 350M",
        rules("model.decoder", "final_layer_norm", "lm_head.weight"),
        {"model.decoder.version": "a number that fairseq left behind"},
    ),
    decoder_format(
        "biogpt",
        "BioGpt",
        BIOGPT.to_ours,
        BIOGPT.to_theirs,
        "BioGPT, BioGPT Large",
        rules("biogpt", "layer_norm", "output_projection.weight"),
        {},
    ),
    decoder_format(
        "xglm",
        "XGLM",
        xglm_to_ours,
        XGLM.to_theirs,
        "XGLM",
        omitted(rules("model", "layer_norm", "lm_head.weight"), "model.positions.weight"),
        {"model.embed_positions.weights": SINUSOIDS},
    ),
)
