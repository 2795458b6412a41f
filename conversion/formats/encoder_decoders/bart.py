"""Marian, BART, PLBart, mBART, PEGASUS, Blenderbot, M2M100, MVP: the same layers in layouts.

Without decoder inputs the models of mBART and PLBart start with the last token of each label
sequence, the language or the end; ours starts with decoder_start_token_id. The losses are equal
where that is the same token, or where decoder_input_ids are given. The language that M2M100 and
NLLB start with is a setting of generation_config.json, or of each call.
"""

from dataclasses import replace

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.field_map import FieldMap
from ...engine.format import SEQ2SEQ, Format, carry, require, without
from ...engine.rules import Rule, linear, linears
from ...engine.transforms import DropRows, FirstOfTwo, Flatten, WithSinusoids
from ..shared import (
    COMMON_FIELDS,
    FAIRSEQ_SINUSOIDS,
    MARIAN_LAYER,
    NO_GROUPS,
    OPTIONAL_IDS,
    POST_NORM,
    SINUSOIDS,
)

STACKS = ("model.encoder", "model.decoder")
ENCODER_LAYER, DECODER_LAYER = (f"{stack}.layers.{{i}}" for stack in STACKS)
CROSS_ATTENTION = {
    **{f"cross_attn.{x}_proj": f"encoder_attn.{x}_proj" for x in "qkv"},
    "cross_attn.o_proj": "encoder_attn.out_proj",
    "cross_attn_norm": "encoder_attn_layer_norm",
}
LAYERS_AND_HEAD = (
    *linears(ENCODER_LAYER, ENCODER_LAYER, MARIAN_LAYER),
    *linears(DECODER_LAYER, DECODER_LAYER, {**MARIAN_LAYER, **CROSS_ATTENTION}),
    Rule("model.shared.weight", "model.shared.weight"),
    Rule("model.decoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    Rule("lm_head.weight", "lm_head.weight"),
    Rule("lm_head.bias", "final_logits_bias", Flatten()),
)
ENCODER_TABLE = "model.encoder.embed_tokens.weight"
MARIAN_RULES = (*LAYERS_AND_HEAD, Rule(ENCODER_TABLE, ENCODER_TABLE))
# But for Marian, a model that ties nothing makes the shared table as well and never reads it.
RULES = (
    *LAYERS_AND_HEAD,
    Rule(ENCODER_TABLE, (ENCODER_TABLE, "model.shared.weight"), FirstOfTwo()),
)
TABLES = {stack: f"{stack}.embed_positions.weight" for stack in STACKS}
BART_RULES = (
    *RULES,
    *(Rule(f"{stack}.positions.weight", table, DropRows(2)) for stack, table in TABLES.items()),
    *(
        rule
        for stack in STACKS
        for rule in linear(f"{stack}.embed_norm", f"{stack}.layernorm_embedding")
    ),
)
LAST_NORMS = tuple(
    rule for stack in STACKS for rule in linear(f"{stack}.norm", f"{stack}.layer_norm")
)
PEGASUS_RULES = (
    *RULES,
    # A table has no tensor of ours to come from; each stack has one last norm.
    *(
        Rule(f"{stack}.norm.weight", (f"{stack}.layer_norm.weight", table), WithSinusoids())
        for stack, table in TABLES.items()
    ),
    *(Rule(f"{stack}.norm.bias", f"{stack}.layer_norm.bias") for stack in STACKS),
)
BLENDERBOT_RULES = (
    *RULES,
    *LAST_NORMS,
    *(Rule(f"{stack}.positions.weight", table) for stack, table in TABLES.items()),
)
VERSIONS = dict.fromkeys(
    (f"{stack}.version" for stack in STACKS), "a number that fairseq left behind"
)
ZERO_IF_ABSENT = ("final_logits_bias",)  # a checkpoint of the base model, as bart-large is

# theirs → ours, but for the vocabularies; our two stacks have one width and number of heads.
FIELDS = {
    **without(COMMON_FIELDS, "vocab_size", "bos_token_id"),
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
}
POSITIONS = {
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "halves",
    "embedding_norm": False,
}
LEARNED = {"position_embedding_type": "learned", "embedding_norm": True}
NORMS_FIRST = {"norm_position": "pre", "final_norm": True}
MARIAN = FieldMap("Marian", FIELDS, {**POST_NORM, **POSITIONS}, NO_GROUPS, has_head_dim=False)


def to_ours(theirs: Config, fields: FieldMap) -> Fields:
    require(
        theirs,
        "hf_tformer",
        decoder_attention_heads=theirs.encoder_attention_heads,
        decoder_ffn_dim=theirs.encoder_ffn_dim,
    )
    ids = {name: getattr(theirs, name, None) for name in OPTIONAL_IDS}
    return {**fields.to_ours(theirs), **ids, "initializer": "normal"}


def to_theirs(ours: Config, fields: FieldMap) -> Fields:
    theirs = fields.to_theirs(ours)
    require(ours, fields.format_name, value_head_dim=ours.head_dim)
    return {
        **theirs,
        **carry(ours, OPTIONAL_IDS),
        "decoder_attention_heads": ours.num_attention_heads,
        "decoder_ffn_dim": ours.intermediate_size,
        "forced_eos_token_id": None,  # a setting of generation_config.json
    }


def marian_to_ours(theirs: Config) -> Fields:
    fields = to_ours(theirs, MARIAN)
    has_two = not theirs.share_encoder_decoder_embeddings
    if not has_two:
        require(theirs, "hf_tformer", decoder_vocab_size=theirs.vocab_size)
    return {
        **fields,
        "vocab_size": theirs.decoder_vocab_size,
        "source_vocab_size": theirs.vocab_size if has_two else None,
        # Untied, transformers makes one table for each side, whatever their field is.
        "share_encoder_decoder_embeddings": not has_two and theirs.tie_word_embeddings,
    }


def marian_to_theirs(ours: Config) -> Fields:
    fields = to_theirs(ours, MARIAN)
    if ours.share_encoder_decoder_embeddings and not ours.tie_word_embeddings:
        raise ConversionError(
            "share_encoder_decoder_embeddings is True with tie_word_embeddings False, which "
            "Marian cannot express: untied, it has a table for each side"
        )
    return {
        **fields,
        "vocab_size": ours.source_vocab_size or ours.vocab_size,
        "decoder_vocab_size": ours.vocab_size,
        "share_encoder_decoder_embeddings": ours.share_encoder_decoder_embeddings,
    }


def one_vocabulary(
    name: str,
    prefix: str,
    format_name: str,
    released: str,
    rules: tuple[Rule, ...],
    layout: Fields,
    ignored: dict[str, str],
    sinusoids: tuple[str, ...] = (),
    constants: Fields | None = None,
) -> Format:
    """Return a format whose sides share a vocabulary, and its table where the head is tied.

    `layout` are values of ours in which the formats differ, `constants` values of theirs.
    """
    fields = FieldMap(
        format_name,
        {**FIELDS, "vocab_size": "vocab_size"},
        {**POST_NORM, **layout},
        {**NO_GROUPS, "share_encoder_decoder_embeddings": "tie_word_embeddings"},
        has_head_dim=False,
    )

    def config_to_theirs(ours: Config) -> Fields:
        theirs = to_theirs(ours, fields)
        if ours.source_vocab_size != ours.vocab_size:
            require(ours, format_name, source_vocab_size=None)
        return {**theirs, **(constants or {})}

    return Format(
        name,
        rules,
        lambda theirs: to_ours(theirs, fields),
        config_to_theirs,
        (f"{prefix}Config", f"{prefix}ForConditionalGeneration"),
        SEQ2SEQ,
        ignored,
        ZERO_IF_ABSENT,
        sinusoids=sinusoids,
        released=released,
    )


def mvp() -> Format:
    """Return the format of BART's layers, which may read prompts that ours has no place for."""
    format = one_vocabulary(
        "mvp",
        "Mvp",
        format_name="MVP",
        released="MVP and its tasks, without prompts",
        rules=BART_RULES,
        layout=LEARNED,
        ignored=VERSIONS,
    )

    def config_to_ours(theirs: Config) -> Fields:
        require(theirs, "hf_tformer", use_prompt=False)
        return format.config_to_ours(theirs)

    return replace(format, config_to_ours=config_to_ours)


def m2m100() -> Format:
    """Return the format whose models count the positions of all tokens but the padding id."""
    format = one_vocabulary(
        "m2m_100",
        "M2M100",
        format_name="M2M100",
        released="M2M100, NLLB-200",
        rules=(*RULES, *LAST_NORMS),
        layout={**FAIRSEQ_SINUSOIDS, **NORMS_FIRST, "lm_head_bias": False},
        ignored={**VERSIONS, **{f"{stack}.embed_positions.weights": SINUSOIDS for stack in STACKS}},
    )
    return replace(
        format,
        config_to_ours=lambda theirs: format.config_to_ours(counted(theirs)),
        config_to_theirs=lambda ours: format.config_to_theirs(counted(ours)),
    )


def counted(config: Config) -> Config:
    """Refuse a start token that M2M100 takes for padding, and gives no position."""
    start = config.decoder_start_token_id
    if start is not None and start == config.pad_token_id:
        raise ConversionError(
            f"decoder_start_token_id is {start}, which is pad_token_id, too: M2M100 counts "
            "positions without it and hf_tformer with it, so the logits differ; start with "
            "another token (eos_token_id in the released models)"
        )
    return config


FORMATS = (
    Format(
        "marian",
        MARIAN_RULES,
        marian_to_ours,
        marian_to_theirs,
        ("MarianConfig", "MarianMTModel"),
        SEQ2SEQ,
        {
            **dict.fromkeys(TABLES.values(), f"frozen {SINUSOIDS}"),
            "model.shared.weight": "untied, transformers makes this table and never reads it",
        },
        ZERO_IF_ABSENT,
        sinusoids=tuple(TABLES.values()),
        released="OPUS-MT (opus-mt-en-de and its siblings)",
    ),
    one_vocabulary(
        "bart",
        "Bart",
        format_name="BART",
        released="BART, BART CNN, BART XSum, DistilBART",
        rules=BART_RULES,
        layout=LEARNED,
        ignored=VERSIONS,
    ),
    one_vocabulary(
        "plbart",
        "PLBart",
        format_name="PLBart",
        released="PLBart",
        rules=BART_RULES,
        layout=LEARNED,
        ignored=VERSIONS,
    ),
    one_vocabulary(
        "mbart",
        "MBart",
        format_name="mBART",
        released="mBART 25, mBART 50",
        rules=(*BART_RULES, *LAST_NORMS),
        layout={**LEARNED, **NORMS_FIRST},
        ignored=VERSIONS,
    ),
    one_vocabulary(
        "pegasus",
        "Pegasus",
        format_name="PEGASUS",
        released="PEGASUS (XSum, CNN/DailyMail and its siblings)",
        rules=PEGASUS_RULES,
        layout={**POSITIONS, **NORMS_FIRST},
        ignored={},
        sinusoids=tuple(TABLES.values()),
    ),
    one_vocabulary(
        "blenderbot",
        "Blenderbot",
        format_name="Blenderbot",
        released="BlenderBot 400M, 1B and 3B",
        rules=BLENDERBOT_RULES,
        layout={**LEARNED, "embedding_norm": False, **NORMS_FIRST},
        ignored={},
        constants={"encoder_no_repeat_ngram_size": 0},  # a setting of generation_config.json
    ),
    m2m100(),
    mvp(),
)
