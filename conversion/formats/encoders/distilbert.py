"""DistilBERT: BERT without segments, under names of its own."""

from ...engine.aliases import Config, Fields
from ...engine.format import ENCODER, carry, inverted
from ...engine.heads import FormatWithHeads
from ...engine.rules import linear
from ..shared_encoders import (
    LIKE_BERT,
    SHARED,
    heads_of,
    more_ids,
    refuse_other_positions,
    text_classifier,
    transform,
    unread_fields,
)
from .bert import buffers, embeddings, layers

LAYER = {
    "self_attn.q_proj": "attention.q_lin",
    "self_attn.k_proj": "attention.k_lin",
    "self_attn.v_proj": "attention.v_lin",
    "self_attn.o_proj": "attention.out_lin",
    "self_attn_norm": "sa_layer_norm",
    "mlp.up_proj": "ffn.lin1",
    "mlp.down_proj": "ffn.lin2",
    "mlp_norm": "output_layer_norm",
}
# Whether the table of positions was filled with sinusoids, it holds them.
FIELDS = {
    **{name: name for name in SHARED},
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}


def to_ours(theirs: Config) -> Fields:
    refuse_other_positions(theirs)
    return {
        **LIKE_BERT,
        **carry(theirs, inverted(FIELDS)),
        **more_ids(theirs),
        "layer_norm_eps": 1e-12,
        "classifier_act": "relu",
        "head_act": theirs.activation,
    }


def to_theirs(ours: Config) -> Fields:
    return {**carry(ours, FIELDS), **more_ids(ours)}


FORMATS = (
    FormatWithHeads(
        "distilbert",
        (*embeddings("distilbert"), *layers("distilbert.transformer.layer.{i}", LAYER)),
        to_ours,
        to_theirs,
        ("DistilBertConfig", "DistilBertModel"),
        ENCODER,
        buffers("distilbert"),
        prefix="distilbert",
        heads=heads_of(
            "DistilBert",
            (
                *transform("vocab_transform", "vocab_layer_norm"),
                *linear("lm_head", "vocab_projector"),
            ),
            texts=text_classifier("pre_classifier", "classifier"),
        ),
        unread_fields=unread_fields,
        released="DistilBERT, multilingual DistilBERT",
    ),
)
