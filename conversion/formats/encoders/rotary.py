"""Nomic, GTE and Jina v3: layers of BERT with rotary positions, by the names in their files.

transformers changes these names as it reads and writes, and splits what is fused there.
"""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.format import carry, inverted, require
from ...engine.rotations import full_rotation
from ...engine.rules import Rule, fused, linear, linears, weights
from ...engine.transforms import Split, Zeros
from ..shared import GATED_MLP, LAYER, QKV
from ..shared_encoders import (
    FIXED,
    TYPED_FIELDS,
    bert_heads,
    encoder_format,
    heads_of,
    more_ids,
    pooler,
    roberta_heads,
    text_classifier,
    transform,
    types,
)

ROTARY = {**FIXED, "position_embedding_type": "rotary", "classifier_act": "tanh"}
NORMS = {"self_attn_norm": "norm1", "mlp_norm": "norm2"}
UNBIASED = dict.fromkeys(("attention_bias", "attention_output_bias", "mlp_bias"), False)
NOMIC_LAYER = "nomic_bert.encoder.layers.{i}"
GTE_LAYER = "gte.encoder.layer.{i}"
JINA_LAYER = "roberta.encoder.layers.{i}"


def queries_keys_values(theirs: str) -> tuple[Rule, Rule]:
    return fused((f"{LAYER}.{name}" for name in QKV), theirs, Split(3))


def embeddings(within: str, norm: str) -> tuple[Rule, ...]:
    words = Rule("model.embed_tokens.weight", f"{within}.embeddings.word_embeddings.weight")
    return (words, types(within), *linear("model.embed_norm", f"{within}.{norm}"))


NOMIC_BODY = (
    *embeddings("nomic_bert", "emb_ln"),
    *queries_keys_values(f"{NOMIC_LAYER}.attn.Wqkv"),
    *linears(LAYER, NOMIC_LAYER, {"self_attn.o_proj": "attn.out_proj", **NORMS}),
    *weights(
        LAYER, NOMIC_LAYER, dict(zip(GATED_MLP, ("mlp.fc12", "mlp.fc11", "mlp.fc2"), strict=True))
    ),
)
GTE_BODY = (
    *embeddings("gte", "embeddings.LayerNorm"),
    *queries_keys_values(f"{GTE_LAYER}.attention.qkv_proj"),
    *linears(
        LAYER,
        GTE_LAYER,
        {
            "self_attn.o_proj": "attention.o_proj",
            "self_attn_norm": "attn_ln",
            "mlp.down_proj": "mlp.down_proj",
            "mlp_norm": "mlp_ln",
        },
    ),
    Rule(
        (f"{LAYER}.mlp.up_proj.weight", f"{LAYER}.mlp.gate_proj.weight"),
        f"{GTE_LAYER}.mlp.up_gate_proj.weight",
        Split(2),
    ),
    # Of the biases of an MLP it has the last.
    *(Rule(f"{LAYER}.mlp.{x}_proj.bias", (), Zeros("intermediate_size")) for x in ("gate", "up")),
)
JINA_BODY = (
    *embeddings("roberta", "emb_ln"),
    *queries_keys_values(f"{JINA_LAYER}.mixer.Wqkv"),
    *linears(
        LAYER,
        JINA_LAYER,
        {
            "self_attn.o_proj": "mixer.out_proj",
            "mlp.up_proj": "mlp.fc1",
            "mlp.down_proj": "mlp.fc2",
            **NORMS,
        },
    ),
)


def to_ours(theirs: Config) -> Fields:
    return {
        **ROTARY,
        **carry(theirs, inverted(TYPED_FIELDS)),
        **more_ids(theirs),
        "head_act": "gelu",
        "rope_parameters": full_rotation(theirs, "hf_tformer"),
    }


def to_theirs(ours: Config, format_name: str) -> Fields:
    require(ours, format_name, position_embedding_type="rotary", sliding_window=None)
    return {
        **carry(ours, TYPED_FIELDS),
        **more_ids(ours),
        "hidden_dropout_prob": float(ours.dropout),  # Nomic's configuration refuses a whole number
        "attention_probs_dropout_prob": float(ours.attention_dropout),
        "rope_parameters": full_rotation(ours, format_name),
    }


def nomic_to_theirs(ours: Config) -> Fields:
    return {**to_theirs(ours, "Nomic"), "head_dim": ours.head_dim}


def nomic_to_ours(theirs: Config) -> Fields:
    gated = {"mlp_type": "gated", **UNBIASED, "head_act": theirs.hidden_act}
    return {**to_ours(theirs), **gated, "head_dim": theirs.head_dim}


def gte_to_ours(theirs: Config) -> Fields:
    return {**to_ours(theirs), "mlp_type": "gated"}


FORMATS = (
    encoder_format(
        "nomic_bert",
        "NomicBert",
        "nomic_bert",
        NOMIC_BODY,
        nomic_to_ours,
        nomic_to_theirs,
        bert_heads("NomicBert", "nomic_bert", "layer_norm", answers=None),
        "Nomic Embed Text v1 and v1.5",
        dropped=pooler("nomic_bert"),
    ),
    encoder_format(
        "gte",
        "Gte",
        "gte",
        GTE_BODY,
        gte_to_ours,
        partial(to_theirs, format_name="GTE"),
        heads_of(
            "Gte",
            (*transform("lm_head.dense", "lm_head.norm"), *linear("lm_head", "lm_head.decoder")),
            texts=text_classifier("gte.pooler.dense", "classifier"),
            answers=None,
        ),
        "GTE multilingual base, GTE v1.5",
        dropped=pooler("gte"),
    ),
    encoder_format(
        "jina_embeddings_v3",
        "JinaEmbeddingsV3",
        "roberta",
        JINA_BODY,
        to_ours,
        partial(to_theirs, format_name="Jina v3"),
        roberta_heads("JinaEmbeddingsV3"),
        "Jina Embeddings v3, without the adapters of its tasks",
        dropped=pooler("roberta"),
    ),
)
