"""Marian, and what it has in common with BART and its kin: the layers, most fields."""

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import (
    SEQ2SEQ,
    Format,
    carry,
    inverted,
    plain_attention_scale,
    require,
    whole_heads,
)
from ...engine.rules import Rule, linear
from ...engine.transforms import Flatten

# our module → theirs, in a layer
MODULES = {
    **{f"self_attn.{x}_proj": f"self_attn.{x}_proj" for x in "qkv"},
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn_norm": "self_attn_layer_norm",
    "mlp.up_proj": "fc1",
    "mlp.down_proj": "fc2",
    "mlp_norm": "final_layer_norm",
}
DECODER_MODULES = {
    **{f"cross_attn.{x}_proj": f"encoder_attn.{x}_proj" for x in "qkv"},
    "cross_attn.o_proj": "encoder_attn.out_proj",
    "cross_attn_norm": "encoder_attn_layer_norm",
}


def layer_rules(stack: str, modules: dict[str, str]) -> tuple[Rule, ...]:
    layer = f"model.{stack}.layers.{{i}}"
    return tuple(
        rule
        for ours, theirs in modules.items()
        for rule in linear(f"{layer}.{ours}", f"{layer}.{theirs}")
    )


LAYERS_AND_HEAD = (
    *layer_rules("encoder", MODULES),
    *layer_rules("decoder", {**MODULES, **DECODER_MODULES}),
    Rule("model.shared.weight", "model.shared.weight"),
    Rule("model.decoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    Rule("lm_head.weight", "lm_head.weight"),
    Rule("lm_head.bias", "final_logits_bias", Flatten()),
)
RULES = (
    *LAYERS_AND_HEAD,
    Rule("model.encoder.embed_tokens.weight", "model.encoder.embed_tokens.weight"),
)
SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
IGNORED = {
    **dict.fromkeys(SINUSOIDS, "frozen sinusoids, computed where they are needed"),
    "model.shared.weight": "without tying, transformers makes this table and never reads it",
}
ZERO_IF_ABSENT = ("final_logits_bias",)  # a checkpoint of the base model, as bart-large is

# theirs → ours, but for the vocabularies
FIELDS = {
    "d_model": "hidden_size",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "activation_function": "hidden_act",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "initializer_range",
    "scale_embedding": "scale_embedding",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "eos_token_id": "eos_token_id",
}
# PEGASUS knows no beginning and PLBart no start, unless config.json names one.
MAYBE = ("bos_token_id", "decoder_start_token_id")
FIXED = {
    "norm_type": "layernorm",
    "layer_norm_eps": 1e-5,
    "norm_position": "post",
    "final_norm": False,
    "qk_norm": False,
    "mlp_type": "plain",
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
    "lm_head_bias": True,
    "logit_scale": 1.0,
}
POSITIONS = {
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "halves",
    "embedding_norm": False,
}


def shared_fields_to_ours(theirs: Config) -> Fields:
    """What holds for Marian and BART's kin; our two stacks have one width and number of heads."""
    require(
        theirs,
        "hf_tformer",
        decoder_attention_heads=theirs.encoder_attention_heads,
        decoder_ffn_dim=theirs.encoder_ffn_dim,
    )
    ids = {name: getattr(theirs, name, None) for name in MAYBE}
    return {**carry(theirs, FIELDS), **ids, **FIXED, "initializer": "normal"}


def shared_fields_to_theirs(ours: Config, reader: str, **fixed: object) -> Fields:
    require(ours, reader, **{**FIXED, **fixed})
    whole_heads(ours, reader)
    require(ours, reader, value_head_dim=ours.head_dim)
    plain_attention_scale(ours, reader)
    refuse_one_table_of_two(ours, reader)
    return {
        **carry(ours, inverted(FIELDS)),
        **carry(ours, MAYBE),
        "decoder_attention_heads": ours.num_attention_heads,
        "decoder_ffn_dim": ours.intermediate_size,
        "forced_eos_token_id": None,  # a matter of generation_config.json
    }


def refuse_one_table_of_two(ours: Config, reader: str) -> None:
    if ours.share_encoder_decoder_embeddings and not ours.tie_word_embeddings:
        raise ConversionError(
            "share_encoder_decoder_embeddings is True with tie_word_embeddings False, which "
            f"{reader} cannot express: untied, it has a table for each side"
        )


def to_ours(theirs: Config) -> Fields:
    fields = shared_fields_to_ours(theirs)
    has_two = not theirs.share_encoder_decoder_embeddings
    if not has_two:
        require(theirs, "hf_tformer", decoder_vocab_size=theirs.vocab_size)
    return {
        **fields,
        **POSITIONS,
        "vocab_size": theirs.decoder_vocab_size,
        "source_vocab_size": theirs.vocab_size if has_two else None,
        # Untied, transformers makes one table for each side, whatever their field says.
        "share_encoder_decoder_embeddings": not has_two and theirs.tie_word_embeddings,
    }


def to_theirs(ours: Config) -> Fields:
    return {
        **shared_fields_to_theirs(ours, "Marian", **POSITIONS),
        "vocab_size": ours.source_vocab_size or ours.vocab_size,
        "decoder_vocab_size": ours.vocab_size,
        "share_encoder_decoder_embeddings": ours.share_encoder_decoder_embeddings,
    }


FORMATS = (
    Format(
        "marian",
        RULES,
        to_ours,
        to_theirs,
        ("MarianConfig", "MarianMTModel"),
        SEQ2SEQ,
        IGNORED,
        ZERO_IF_ABSENT,
        sinusoids=SINUSOIDS,
        released="OPUS-MT (opus-mt-en-de and its siblings)",
    ),
)
