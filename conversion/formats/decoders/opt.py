"""OPT and BioGPT: GPT-2's layers, and learned positions that begin at two."""

from ...engine.aliases import Config, Fields
from ...engine.format import (
    BIASES,
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
from ...engine.transforms import DropRows
from ..encoder_decoders.marian import MODULES


def rules(stack: str, final_norm: str, head: str) -> tuple[Rule, ...]:
    """Both stacks hold the same modules; each calls its last norm and its head otherwise."""
    return (
        Rule("model.embed_tokens.weight", f"{stack}.embed_tokens.weight"),
        Rule("model.positions.weight", f"{stack}.embed_positions.weight", DropRows(2)),
        *(
            rule
            for ours, theirs in MODULES.items()
            for rule in linear(f"model.layers.{{i}}.{ours}", f"{stack}.layers.{{i}}.{theirs}")
        ),
        *linear("model.norm", f"{stack}.{final_norm}"),
        Rule("lm_head.weight", head),
    )


OPT_IGNORED = {"model.decoder.version": "a number that fairseq left behind"}

# theirs → ours, in both
SHARED_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "max_position_embeddings": "max_position_embeddings",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
OPT_FIELDS = {
    **SHARED_FIELDS,
    "ffn_dim": "intermediate_size",
    "activation_function": "hidden_act",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "initializer_range",
}
BIOGPT_FIELDS = {
    **SHARED_FIELDS,
    "intermediate_size": "intermediate_size",
    "hidden_act": "hidden_act",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
    "scale_embedding": "scale_embedding",
}
FIXED = {
    "position_embedding_type": "learned",
    "norm_type": "layernorm",
    "layer_norm_eps": 1e-5,  # BioGPT has a field for it, which its model does not read
    "embedding_norm": False,
    "qk_norm": False,
    "mlp_type": "plain",
    "lm_head_bias": False,
    "logit_scale": 1.0,
    "sliding_window": None,
}
BIOGPT_FIXED = {"norm_position": "pre", "final_norm": True, **dict.fromkeys(BIASES, True)}


def opt_to_ours(theirs: Config) -> Fields:
    require(
        theirs,
        "hf_tformer",
        word_embed_proj_dim=theirs.hidden_size,
        layer_norm_elementwise_affine=True,
    )
    is_pre = theirs.do_layer_norm_before
    return {
        **carry(theirs, OPT_FIELDS),
        **FIXED,
        "num_key_value_heads": theirs.num_attention_heads,
        "scale_embedding": False,
        "norm_position": "pre" if is_pre else "post",
        "final_norm": is_pre and not theirs._remove_final_layer_norm,
        **dict.fromkeys(BIASES, theirs.enable_bias),
    }


def opt_to_theirs(ours: Config) -> Fields:
    biases = dict.fromkeys(BIASES, ours.attention_bias)
    require_shared(ours, "OPT", scale_embedding=False, **biases)
    choose(ours, "OPT", norm_position=("pre", "post"))
    is_pre = ours.norm_position == "pre"
    if not is_pre:
        require(ours, "OPT", final_norm=False)
    return {
        **carry(ours, inverted(OPT_FIELDS)),
        "enable_bias": ours.attention_bias,
        "do_layer_norm_before": is_pre,
        "_remove_final_layer_norm": is_pre and not ours.final_norm,
    }


def require_shared(ours: Config, reader: str, **fixed: object) -> None:
    require(ours, reader, **FIXED, **fixed)
    whole_heads(ours, reader)
    plain_attention_scale(ours, reader)


def biogpt_to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, BIOGPT_FIELDS),
        **FIXED,
        **BIOGPT_FIXED,
        "num_key_value_heads": theirs.num_attention_heads,
    }


def biogpt_to_theirs(ours: Config) -> Fields:
    require_shared(ours, "BioGPT", **BIOGPT_FIXED)
    return carry(ours, inverted(BIOGPT_FIELDS))


FORMATS = (
    Format(
        "opt",
        rules("model.decoder", "final_layer_norm", "lm_head.weight"),
        opt_to_ours,
        opt_to_theirs,
        ("OPTConfig", "OPTForCausalLM"),
        DECODER,
        OPT_IGNORED,
        released="OPT, all sizes but 350M",
    ),
    Format(
        "biogpt",
        rules("biogpt", "layer_norm", "output_projection.weight"),
        biogpt_to_ours,
        biogpt_to_theirs,
        ("BioGptConfig", "BioGptForCausalLM"),
        DECODER,
        released="BioGPT, BioGPT Large",
    ),
)
