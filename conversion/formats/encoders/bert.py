"""BERT, and the discriminators of ELECTRA, which are built like it."""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.format import ENCODER, carry, inverted, require
from ...engine.heads import FormatWithHeads
from ...engine.rules import Rule, linear
from ..shared_encoders import (
    BERT_FIELDS,
    ENCODERS_ALONE,
    LIKE_BERT,
    dropped,
    heads_of,
    masked,
    more_ids,
    refuse_other_positions,
    require_types,
    text_classifier,
    transform,
    unread_fields,
)

BUFFERS = ("position_ids", "token_type_ids")


def embeddings(prefix: str) -> tuple[Rule, ...]:
    return (
        Rule("model.embed_tokens.weight", f"{prefix}.embeddings.word_embeddings.weight"),
        Rule("model.positions.weight", f"{prefix}.embeddings.position_embeddings.weight"),
        *linear("model.embed_norm", f"{prefix}.embeddings.LayerNorm"),
    )


def types(prefix: str) -> Rule:
    return Rule("model.embed_types.weight", f"{prefix}.embeddings.token_type_embeddings.weight")


def layers(theirs: str, names: dict[str, str]) -> tuple[Rule, ...]:
    """Rules for modules of each layer: ours → theirs, under the names of a layer there."""
    return tuple(
        rule
        for ours, name in names.items()
        for rule in linear(f"model.layers.{{i}}.{ours}", f"{theirs}.{name}")
    )


LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.o_proj": "attention.output.dense",
    "self_attn_norm": "attention.output.LayerNorm",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
    "mlp_norm": "output.LayerNorm",
}


def pooler(prefix: str) -> dict[str, str]:
    names = ("pooler.dense", f"{prefix}.pooler.dense")
    return dropped("the pooler, which no answer of this model passes through", *names)


def body(prefix: str) -> tuple[Rule, ...]:
    return (*embeddings(prefix), types(prefix), *layers(f"{prefix}.encoder.layer.{{i}}", LAYER))


def buffers(prefix: str) -> dict[str, str]:
    return {
        f"{place}embeddings.{name}": "counted, or zeros"
        for name in BUFFERS
        for place in ("", f"{prefix}.")
    }


def to_ours(theirs: Config, classifier_act: str, head_act: str | None = None) -> Fields:
    """`head_act` is None where the head takes the activation of the layers."""
    require(theirs, "hf_tformer", **ENCODERS_ALONE)
    refuse_other_positions(theirs)
    require_types(theirs, "hf_tformer")
    return {
        **LIKE_BERT,
        **carry(theirs, inverted(BERT_FIELDS)),
        **more_ids(theirs),
        "type_vocab_size": theirs.type_vocab_size,
        "classifier_act": classifier_act,
        "head_act": head_act or theirs.hidden_act,
    }


def to_theirs(ours: Config, reader: str) -> Fields:
    require_types(ours, reader)
    return {
        **carry(ours, BERT_FIELDS),
        **more_ids(ours),
        "type_vocab_size": ours.type_vocab_size,
    }


def electra_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", embedding_size=theirs.hidden_size)
    return to_ours(theirs, "gelu", "gelu")


def electra_to_theirs(ours: Config) -> Fields:
    return {**to_theirs(ours, "ELECTRA"), "embedding_size": ours.hidden_size}


PREDICTIONS = "cls.predictions"
BERT_HEADS = heads_of(
    "Bert",
    masked(
        f"{PREDICTIONS}.transform.dense",
        f"{PREDICTIONS}.transform.LayerNorm",
        f"{PREDICTIONS}.decoder",
        f"{PREDICTIONS}.bias",
    ),
    texts=text_classifier("bert.pooler.dense", "classifier"),
)
# Pretraining foretells words and, by the pooler, whether two sentences belong together.
BERT_HEADS["BertForPreTraining"] = BERT_HEADS["BertForMaskedLM"]
ELECTRA_HEADS = heads_of(
    "Electra",
    (
        *transform("generator_predictions.dense", "generator_predictions.LayerNorm"),
        *linear("lm_head", "generator_lm_head"),
    ),
    texts=text_classifier("classifier.dense", "classifier.out_proj"),
)
# A discriminator as it was pretrained: what its own head tells, no task asks.
ELECTRA_HEADS["ElectraForPreTraining"] = ELECTRA_HEADS["ElectraModel"]

FORMATS = (
    FormatWithHeads(
        "bert",
        body("bert"),
        partial(to_ours, classifier_act="tanh"),
        partial(to_theirs, reader="BERT"),
        ("BertConfig", "BertModel"),
        ENCODER,
        buffers("bert"),
        dropped={
            **pooler("bert"),
            **dropped("the guess whether two sentences belong together", "cls.seq_relationship"),
        },
        prefix="bert",
        heads=BERT_HEADS,
        unread_fields=unread_fields,
        released="BERT, multilingual BERT, MiniLM, BGE, E5, SciBERT",
    ),
    FormatWithHeads(
        "electra",
        body("electra"),
        electra_to_ours,
        electra_to_theirs,
        ("ElectraConfig", "ElectraModel"),
        ENCODER,
        buffers("electra"),
        dropped=dropped(
            "the guess which words were replaced in pretraining",
            "discriminator_predictions.dense",
            "discriminator_predictions.dense_prediction",
        ),
        prefix="electra",
        heads=ELECTRA_HEADS,
        unread_fields=unread_fields,
        released="ELECTRA, base and large discriminators",
    ),
)
