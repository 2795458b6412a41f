"""RoBERTa, XLM-RoBERTa and its XL, CamemBERT, data2vec, RoBERTa-PreLayerNorm and MPNet.

They count positions from behind the padding id.
"""

from collections.abc import Callable
from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import carry, inverted, require
from ...engine.heads import FormatWithHeads
from ...engine.rules import Rule, linear, replaced
from ...engine.transforms import DropPadding
from ..shared_encoders import (
    BERT_LAYER,
    FIELDS,
    FIXED,
    bert_to_ours,
    bert_to_theirs,
    body,
    buffers,
    encoder_format,
    more_ids,
    pooler,
    roberta_heads,
    types,
)

MPNET_LAYER = {
    **BERT_LAYER,
    **{f"self_attn.{x}_proj": f"attention.attn.{x}" for x in "qkvo"},
    "self_attn_norm": "attention.LayerNorm",
}
BUCKETS = 32  # of distances in MPNet; more of them would not be read


def behind_padding(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules of a body whose positions begin behind that of padding."""
    positions = next(rule for rule in rules if rule.ours == "model.positions.weight")
    return replaced(rules, Rule(positions.ours, positions.theirs, DropPadding()))


def positions_to_ours(theirs: Config) -> Fields:
    """Return how many positions there are without those that padding takes."""
    if theirs.pad_token_id is None:
        raise ConversionError(
            "pad_token_id is None, but positions are counted from it: write it into config.json"
        )
    return {"max_position_embeddings": theirs.max_position_embeddings - theirs.pad_token_id - 1}


def positions_to_theirs(ours: Config, format_name: str) -> Fields:
    if ours.pad_token_id is None:
        raise ConversionError(
            f"pad_token_id is None, but {format_name} counts positions from it: write it into "
            "config.json"
        )
    return {"max_position_embeddings": ours.max_position_embeddings + ours.pad_token_id + 1}


def roberta_to_ours(theirs: Config) -> Fields:
    return {**bert_to_ours(theirs, "tanh", "gelu"), **positions_to_ours(theirs)}


def roberta_to_theirs(ours: Config, format_name: str) -> Fields:
    return {**bert_to_theirs(ours, format_name), **positions_to_theirs(ours, format_name)}


def prelayernorm_to_ours(theirs: Config) -> Fields:
    return {**roberta_to_ours(theirs), "norm_position": "pre", "final_norm": True}


def mpnet_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", relative_attention_num_buckets=BUCKETS, pad_token_id=1)
    return {
        **FIXED,
        **carry(theirs, inverted(FIELDS)),
        **more_ids(theirs),
        **positions_to_ours(theirs),
        "score_bias": "relative",
        "classifier_act": "tanh",
        "head_act": "gelu",
    }


def mpnet_to_theirs(ours: Config) -> Fields:
    require(ours, "MPNet", pad_token_id=1)
    return {**carry(ours, FIELDS), **more_ids(ours), **positions_to_theirs(ours, "MPNet")}


def xl_to_ours(theirs: Config) -> Fields:
    return {**prelayernorm_to_ours(theirs), "embedding_norm": False}


PRELAYERNORM = "roberta_prelayernorm"
# Norms in front of the branches, and one behind the layers.
PRE_LAYER = {
    **BERT_LAYER,
    "self_attn_norm": "attention.LayerNorm",
    "mlp_norm": "intermediate.LayerNorm",
}
XL_LAYER = {
    **BERT_LAYER,
    "self_attn_norm": "attention.self_attn_layer_norm",
    "mlp_norm": "LayerNorm",
}
MPNET_BODY = (
    *behind_padding(body("mpnet", MPNET_LAYER)),
    Rule("model.score_bias.table.weight", "mpnet.encoder.relative_attention_bias.weight"),
)
# model_type, beginning of the classes, name before the body, released
ROBERTAS = (
    ("roberta", "Roberta", "roberta", "RoBERTa, DistilRoBERTa, CodeBERT"),
    ("xlm-roberta", "XLMRoberta", "roberta", "XLM-RoBERTa, BGE-M3, multilingual E5"),
    ("camembert", "Camembert", "roberta", "CamemBERT"),
    ("data2vec-text", "Data2VecText", "data2vec_text", "data2vec text"),
)


def roberta_format(
    name: str,
    prefix: str,
    within: str,
    released: str,
    rules: tuple[Rule, ...],
    config_to_ours: Callable[[Config], Fields] = roberta_to_ours,
) -> FormatWithHeads:
    return encoder_format(
        name,
        prefix,
        within,
        rules,
        config_to_ours,
        partial(roberta_to_theirs, format_name=prefix),
        roberta_heads(prefix),
        released,
        buffers(within),
        pooler(within),
        lambda theirs: theirs.pad_token_id + 1,
    )


FORMATS = (
    *(
        roberta_format(
            name,
            prefix,
            within,
            released,
            (*behind_padding(body(within, BERT_LAYER)), types(within)),
        )
        for name, prefix, within, released in ROBERTAS
    ),
    roberta_format(
        "roberta-prelayernorm",
        "RobertaPreLayerNorm",
        PRELAYERNORM,
        "RoBERTa-PreLayerNorm (efficient MLM)",
        (
            *behind_padding(body(PRELAYERNORM, PRE_LAYER)),
            types(PRELAYERNORM),
            *linear("model.norm", f"{PRELAYERNORM}.LayerNorm"),
        ),
        prelayernorm_to_ours,
    ),
    roberta_format(
        "xlm-roberta-xl",
        "XLMRobertaXL",
        "roberta",
        "XLM-RoBERTa XL and XXL",
        (
            *behind_padding(body("roberta", XL_LAYER)),
            types("roberta"),
            *linear("model.norm", "roberta.encoder.LayerNorm"),
        ),
        xl_to_ours,
    ),
    encoder_format(
        "mpnet",
        "MPNet",
        "mpnet",
        MPNET_BODY,
        mpnet_to_ours,
        mpnet_to_theirs,
        roberta_heads("MPNet"),
        "MPNet, all-mpnet-base",
        buffers("mpnet"),
        pooler("mpnet"),
        lambda theirs: theirs.pad_token_id + 1,
    ),
)
