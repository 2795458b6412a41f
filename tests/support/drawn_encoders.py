"""Random configurations of transformers' encoders, with values that convert and values that do not.

Every field that changes an answer is drawn, and what old folders hold besides.
"""

import random

from transformers.activations import ACT2FN

from conversion.engine import registry

FORMATS = {
    "bert": "Bert",
    "ernie": "Ernie",
    "megatron-bert": "MegatronBert",
    "data2vec-text": "Data2VecText",
    "roberta-prelayernorm": "RobertaPreLayerNorm",
    "xlm-roberta-xl": "XLMRobertaXL",
    "nomic_bert": "NomicBert",
    "gte": "Gte",
    "jina_embeddings_v3": "JinaEmbeddingsV3",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "mpnet": "MPNet",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "modernbert": "ModernBert",
    "eurobert": "EuroBert",
    "embeddinggemma": "Gemma3Text",
}
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification")
HEADS += ("ForTokenClassification", "ForQuestionAnswering")
# Formats whose folders may hold what pretraining needed.
PRETRAINED = ("bert", "ernie", "megatron-bert", "electra")
# Not those that learn (prelu, xielu) or draw (rrelu...): their weights would have no place.
ACTIVATIONS = sorted(
    set(ACT2FN) & {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh"}
)
ACTIVATIONS += ["quick_gelu", "relu2", "mish"]


def draw(form, seed):
    """A class of transformers and a configuration for it; not all make a model, or convert."""
    rng = random.Random(f"{form} {seed}")
    heads = [head for head in HEADS if f"{FORMATS[form]}{head}" in registry.FORMATS[form].heads]
    heads += ["ForPreTraining"] * (form in PRETRAINED)
    head = rng.choice(heads)
    fields = {**shared(rng, head), **OWN.get(form, like_bert)(rng)}
    if rng.random() < 0.15:
        fields |= spoilt(rng, form)
    if form == "electra" and "embedding_size" not in fields:
        fields["embedding_size"] = fields["hidden_size"]
    return f"{FORMATS[form]}{head}", f"{FORMATS[form]}Config", fields


def shared(rng, head):
    heads = rng.choice([1, 2, 3, 4])
    vocab_size = rng.randint(9, 70)
    ids = {f"{role}_token_id": rng.choice([None, rng.randrange(vocab_size)]) for role in SPECIAL}
    return {
        "vocab_size": vocab_size,
        "hidden_size": heads * 2 * rng.randint(1, 6),
        "num_hidden_layers": rng.randint(1, 5),
        "num_attention_heads": heads,
        "max_position_embeddings": rng.randint(9, 60),
        "tie_word_embeddings": rng.random() < 0.8,
        "num_labels": 2
        if head == "ForQuestionAnswering" and rng.random() < 0.9
        else rng.randint(1, 6),
        **ids,
        "pad_token_id": rng.choice([0, 1, 1, 1, rng.randrange(8)]),
    }


SPECIAL = ("bos", "eos", "cls", "sep", "mask")


def like_bert(rng):
    return {
        "intermediate_size": rng.randint(1, 40),
        "hidden_act": rng.choice(ACTIVATIONS),
        "layer_norm_eps": 10 ** rng.uniform(-12, -1),
        "type_vocab_size": rng.randint(1, 4),
        "hidden_dropout_prob": rng.choice([0, 0.1]),
        "classifier_dropout": rng.choice([None, 0.3]),
        "position_embedding_type": "absolute",
        "chunk_size_feed_forward": rng.choice([0, 3]),
    }


def distilbert(rng):
    return {
        "hidden_dim": rng.randint(1, 40),
        "activation": rng.choice(ACTIVATIONS),
        "sinusoidal_pos_embds": rng.random() < 0.3,
        "seq_classif_dropout": 0.2,
    }


def mpnet(rng):
    fields = like_bert(rng)
    del fields["type_vocab_size"]
    return {**fields, "pad_token_id": 1}


def rope(rng):
    kind = rng.choice(["default"] * 4 + ["linear", "dynamic", "yarn", "proportional"])
    fields = {"rope_type": kind, "rope_theta": 10 ** rng.uniform(1, 6)}
    if kind != "default":
        fields["factor"] = rng.choice([1.0, 2.5, 8.0])
    if kind == "yarn":
        fields["original_max_position_embeddings"] = 8
    return fields


def modernbert(rng):
    layers = rng.randint(1, 5)
    kinds = ("full_attention", "sliding_attention")
    return {
        "num_hidden_layers": layers,
        "intermediate_size": rng.randint(1, 40),
        "hidden_activation": rng.choice(ACTIVATIONS),
        "norm_eps": 10 ** rng.uniform(-9, -1),
        "norm_bias": rng.random() < 0.3,
        "attention_bias": rng.random() < 0.3,
        "mlp_bias": rng.random() < 0.3,
        "decoder_bias": rng.random() < 0.7,
        "classifier_bias": rng.random() < 0.3,
        "classifier_activation": rng.choice(ACTIVATIONS),
        "classifier_pooling": rng.choice(["cls", "mean"]),
        "local_attention": rng.choice([1, 2, 3, 4, 8, 31, 128]),
        "sparse_prediction": rng.random() < 0.3,
        **rng.choice(
            [
                {},
                {"global_attn_every_n_layers": rng.randint(1, 4)},
                {"layer_types": [rng.choice(kinds) for _ in range(layers)]},
            ]
        ),
        **rng.choice(
            [
                {},
                {"global_rope_theta": 5e4, "local_rope_theta": 1e3},
                {"rope_parameters": {kind: rope(rng) for kind in kinds}},
            ]
        ),
    }


def eurobert(rng):
    kv_heads = rng.choice([1, 2, 3])
    return {
        "num_attention_heads": kv_heads * rng.choice([1, 2]),
        "num_key_value_heads": kv_heads,
        "hidden_size": 12 * rng.randint(1, 3),
        "head_dim": rng.choice([None, None, 2, 8, 12]),
        "intermediate_size": rng.randint(1, 40),
        "hidden_act": rng.choice(ACTIVATIONS),
        "rms_norm_eps": 10 ** rng.uniform(-9, -1),
        "attention_bias": rng.random() < 0.3,
        "mlp_bias": rng.random() < 0.3,
        "classifier_pooling": rng.choice(["bos", "mean", "mean", "late"]),
        "rope_parameters": rope(rng),
        "mask_token_id": 2,
        "pretraining_tp": rng.choice([1, 2]),
    }


def embeddinggemma(rng):
    fields = eurobert(rng)
    layers = rng.randint(1, 5)
    kinds = ("full_attention", "sliding_attention")
    return {
        **{name: fields[name] for name in ("num_attention_heads", "num_key_value_heads")},
        **{name: fields[name] for name in ("hidden_size", "intermediate_size", "rms_norm_eps")},
        "head_dim": rng.choice([2, 8, 12]),
        "num_hidden_layers": layers,
        "hidden_activation": rng.choice(ACTIVATIONS),
        "attention_bias": rng.random() < 0.3,
        "query_pre_attn_scalar": rng.choice([1, 3, 8, 168, 256]),
        "sliding_window": rng.choice([1, 2, 3, 8, 512]),
        "use_bidirectional_attention": True,
        **rng.choice([{}, {"layer_types": [rng.choice(kinds) for _ in range(layers)]}]),
        **rng.choice([{}, {"rope_parameters": {kind: rope(rng) for kind in kinds}}]),
    }


def rotary(rng):
    fields = like_bert(rng)
    del fields["position_embedding_type"]
    return {**fields, "hidden_dropout_prob": 0.1, "rope_parameters": rope(rng)}


OWN = {"distilbert": distilbert, "mpnet": mpnet, "modernbert": modernbert, "eurobert": eurobert}
OWN["embeddinggemma"] = embeddinggemma
OWN |= dict.fromkeys(("nomic_bert", "gte", "jina_embeddings_v3"), rotary)
ACTIVATION = {"distilbert": "activation", "embeddinggemma": "hidden_activation"}


def spoilt(rng, form):
    """One thing that no conversion may pass over in silence."""
    return rng.choice(
        [
            {"position_embedding_type": rng.choice(["relative_key", "relative_key_query"])},
            {"pad_token_id": None},
            {"eos_token_id": 10**6},
            {"mask_token_id": 10**6},
            {"is_decoder": True},
            {"max_position_embeddings": 2},
            {ACTIVATION.get(form, "hidden_act"): "prelu"},
            {"relative_attention_num_buckets": 16} if form == "mpnet" else {"num_hidden_layers": 0},
            {"embedding_size": 4} if form == "electra" else {"num_attention_heads": 5},
            {"partial_rotary_factor": 0.5},
        ]
    )
