"""RoBERTa and its namesakes, and MPNet: BERT whose positions begin behind that of padding."""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import ENCODER, carry, inverted, require
from ...engine.heads import FormatWithHeads
from ...engine.rules import Rule
from ...engine.transforms import DropPadding
from ..shared_encoders import (
    BERT_FIELDS,
    LIKE_BERT,
    heads_of,
    masked,
    more_ids,
    text_classifier,
    unread_fields,
)
from .bert import LAYER, buffers, embeddings, layers, pooler, to_ours, to_theirs, types

MPNET_LAYER = {
    **LAYER,
    **{f"self_attn.{x}_proj": f"attention.attn.{x}" for x in "qkvo"},
    "self_attn_norm": "attention.LayerNorm",
}
BUCKETS = 32  # more of them would not be read


def first_position(theirs: Config) -> int:
    return theirs.pad_token_id + 1


def positions_to_ours(theirs: Config) -> int:
    """How many there are without those that padding takes."""
    if theirs.pad_token_id is None:
        raise ConversionError(
            "pad_token_id is None, but positions are counted from it: write it into config.json"
        )
    return theirs.max_position_embeddings - first_position(theirs)


def positions_to_theirs(ours: Config, reader: str) -> int:
    if ours.pad_token_id is None:
        raise ConversionError(
            f"pad_token_id is None, but {reader} counts positions from it: write it into "
            "config.json"
        )
    return ours.max_position_embeddings + first_position(ours)


def roberta_to_ours(theirs: Config) -> Fields:
    fields = to_ours(theirs, "tanh", "gelu")
    return {**fields, "max_position_embeddings": positions_to_ours(theirs)}


def roberta_to_theirs(ours: Config, reader: str) -> Fields:
    fields = to_theirs(ours, reader)
    return {**fields, "max_position_embeddings": positions_to_theirs(ours, reader)}


def mpnet_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", relative_attention_num_buckets=BUCKETS, pad_token_id=1)
    return {
        **LIKE_BERT,
        **carry(theirs, inverted(BERT_FIELDS)),
        **more_ids(theirs),
        "max_position_embeddings": positions_to_ours(theirs),
        "score_bias": "relative",
        "classifier_act": "tanh",
        "head_act": "gelu",
    }


def mpnet_to_theirs(ours: Config) -> Fields:
    require(ours, "MPNet", pad_token_id=1)
    return {
        **carry(ours, BERT_FIELDS),
        **more_ids(ours),
        "max_position_embeddings": positions_to_theirs(ours, "MPNet"),
    }


def body(prefix: str, layer: dict[str, str]) -> tuple[Rule, ...]:
    words, positions, *norm = embeddings(prefix)
    behind_padding = Rule(positions.ours, positions.theirs, DropPadding())
    return (words, behind_padding, *norm, *layers(f"{prefix}.encoder.layer.{{i}}", layer))


def heads(name: str):
    return heads_of(
        name,
        masked("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
        texts=text_classifier("classifier.dense", "classifier.out_proj"),
    )


FORMATS = (
    *(
        FormatWithHeads(
            model_type,
            (*body("roberta", LAYER), types("roberta")),
            roberta_to_ours,
            partial(roberta_to_theirs, reader=name),
            (f"{name}Config", f"{name}Model"),
            ENCODER,
            buffers("roberta"),
            dropped=pooler("roberta"),
            first_position=first_position,
            prefix="roberta",
            heads=heads(name),
            unread_fields=unread_fields,
            released=released,
        )
        for model_type, name, released in (
            ("roberta", "Roberta", "RoBERTa, DistilRoBERTa, CodeBERT"),
            ("xlm-roberta", "XLMRoberta", "XLM-RoBERTa, BGE-M3, multilingual E5"),
            ("camembert", "Camembert", "CamemBERT"),
        )
    ),
    FormatWithHeads(
        "mpnet",
        (
            *body("mpnet", MPNET_LAYER),
            Rule("model.score_bias.table.weight", "mpnet.encoder.relative_attention_bias.weight"),
        ),
        mpnet_to_ours,
        mpnet_to_theirs,
        ("MPNetConfig", "MPNetModel"),
        ENCODER,
        buffers("mpnet"),
        dropped=pooler("mpnet"),
        first_position=first_position,
        prefix="mpnet",
        heads=heads("MPNet"),
        unread_fields=unread_fields,
        released="MPNet, all-mpnet-base",
    ),
)
