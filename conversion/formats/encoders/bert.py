"""BERT, ERNIE, ELECTRA's discriminators, Megatron-BERT and DistilBERT."""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.format import carry, inverted, require, same
from ...engine.heads import Head
from ...engine.rules import linear
from ..shared_encoders import (
    BERT_LAYER,
    FIXED,
    SHARED_FIELDS,
    bert_heads,
    bert_to_ours,
    bert_to_theirs,
    body,
    buffers,
    dropped,
    encoder_format,
    heads_of,
    more_ids,
    pooler,
    refuse_other_positions,
    text_classifier,
    transform,
    types,
)

DISTILBERT_FIELDS = {
    **SHARED_FIELDS,
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    **same("dropout", "attention_dropout"),
}
DISTILBERT_LAYER = {
    **{f"self_attn.{x}_proj": f"attention.{x}_lin" for x in "qkv"},
    "self_attn.o_proj": "attention.out_lin",
    "self_attn_norm": "sa_layer_norm",
    "mlp.up_proj": "ffn.lin1",
    "mlp.down_proj": "ffn.lin2",
    "mlp_norm": "output_layer_norm",
}
# It norms what a branch reads, and the end of the layers, but no embeddings.
MEGATRON = {"norm_position": "pre", "final_norm": True, "embedding_norm": False}
MEGATRON_LAYER = {**BERT_LAYER, "self_attn_norm": "attention.ln", "mlp_norm": "ln"}


def ernie_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", use_task_id=False)
    return bert_to_ours(theirs, "tanh")


def electra_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", embedding_size=theirs.hidden_size)
    return bert_to_ours(theirs, "gelu", "gelu")


def electra_to_theirs(ours: Config) -> Fields:
    return {**bert_to_theirs(ours, "ELECTRA"), "embedding_size": ours.hidden_size}


def megatron_to_ours(theirs: Config) -> Fields:
    return {**bert_to_ours(theirs, "tanh"), **MEGATRON}


def distilbert_to_ours(theirs: Config) -> Fields:
    refuse_other_positions(theirs)
    return {
        **FIXED,
        **carry(theirs, inverted(DISTILBERT_FIELDS)),
        **more_ids(theirs),
        "layer_norm_eps": 1e-12,
        "classifier_act": "relu",
        "head_act": theirs.activation,
    }


def heads_and_pretraining(prefix: str, within: str) -> dict[str, Head]:
    """Pretraining predicts tokens and, by the pooler, whether two sentences belong together."""
    heads = bert_heads(prefix, within)
    return {**heads, f"{prefix}ForPreTraining": heads[f"{prefix}ForMaskedLM"]}


ELECTRA_HEADS = heads_of(
    "Electra",
    (
        *transform("generator_predictions.dense", "generator_predictions.LayerNorm"),
        *linear("lm_head", "generator_lm_head"),
    ),
    texts=text_classifier("classifier.dense", "classifier.out_proj"),
)
# A discriminator as it was pretrained: no task reads the answer of its own head.
ELECTRA_HEADS["ElectraForPreTraining"] = ELECTRA_HEADS["ElectraModel"]
DISTILBERT_HEADS = heads_of(
    "DistilBert",
    (*transform("vocab_transform", "vocab_layer_norm"), *linear("lm_head", "vocab_projector")),
    texts=text_classifier("pre_classifier", "classifier"),
)
SENTENCES = dropped("the guess whether two sentences belong together", "cls.seq_relationship")
BERTS = (
    ("bert", "Bert", "bert", partial(bert_to_ours, classifier_act="tanh")),
    ("ernie", "Ernie", "ernie", ernie_to_ours),
)
RELEASED = {
    "bert": "BERT, multilingual BERT, MiniLM, BGE, E5, SciBERT",
    "ernie": "ERNIE 1.0 and 2.0",
}
FORMATS = (
    *(
        encoder_format(
            name,
            prefix,
            within,
            (*body(within, BERT_LAYER), types(within)),
            to_ours,
            partial(bert_to_theirs, format_name=prefix),
            heads_and_pretraining(prefix, within),
            RELEASED[name],
            buffers(within),
            {**pooler(within), **SENTENCES},
        )
        for name, prefix, within, to_ours in BERTS
    ),
    encoder_format(
        "electra",
        "Electra",
        "electra",
        (*body("electra", BERT_LAYER), types("electra")),
        electra_to_ours,
        electra_to_theirs,
        ELECTRA_HEADS,
        "ELECTRA, base and large discriminators",
        buffers("electra"),
        dropped(
            "the guess which tokens were replaced in pretraining",
            "discriminator_predictions.dense",
            "discriminator_predictions.dense_prediction",
        ),
    ),
    encoder_format(
        "megatron-bert",
        "MegatronBert",
        "bert",
        (*body("bert", MEGATRON_LAYER), types("bert"), *linear("model.norm", "bert.encoder.ln")),
        megatron_to_ours,
        partial(bert_to_theirs, format_name="Megatron-BERT"),
        heads_and_pretraining("MegatronBert", "bert"),
        "Megatron-BERT 345M",
        buffers("bert"),
        {**pooler("bert"), **SENTENCES},
    ),
    encoder_format(
        "distilbert",
        "DistilBert",
        "distilbert",
        body("distilbert", DISTILBERT_LAYER, "transformer"),
        distilbert_to_ours,
        lambda ours: {**carry(ours, DISTILBERT_FIELDS), **more_ids(ours)},
        DISTILBERT_HEADS,
        "DistilBERT, multilingual DistilBERT",
        buffers("distilbert"),
        {},
    ),
)
