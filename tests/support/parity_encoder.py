"""Encoders of transformers beside ours: tables of their tensors, and a case for each head.

The tables are written for models with a head; a base model has the same names without the first
part. What a head adds stands in a table of its own.
"""

import torch
import transformers

import hf_tformer
from hf_tformer import TformerEncoderConfig
from support.parity import TABLES, Case, Table, random_ids, same

LENGTHS = (11, 4, 7)  # of the rows in a batch
LABELS = 5


def first_third(tensor):
    return tensor.chunk(3)[0]


def second_third(tensor):
    return tensor.chunk(3)[1]


def last_third(tensor):
    return tensor.chunk(3)[2]


def first_half(tensor):
    return tensor.chunk(2)[0]


def second_half(tensor):
    return tensor.chunk(2)[1]


def without_first_two(tensor):
    """Positions begin behind that of padding, which is 1."""
    return tensor[2:]


def bert_body(prefix):
    layer = f"{prefix}.encoder.layer.*"
    return {
        "model.embed_tokens.weight": f"{prefix}.embeddings.word_embeddings.weight",
        "model.embed_types.weight": f"{prefix}.embeddings.token_type_embeddings.weight",
        "model.positions.weight": f"{prefix}.embeddings.position_embeddings.weight",
        "model.embed_norm.*": f"{prefix}.embeddings.LayerNorm.*",
        "model.layers.*.self_attn.q_proj.*": f"{layer}.attention.self.query.*",
        "model.layers.*.self_attn.k_proj.*": f"{layer}.attention.self.key.*",
        "model.layers.*.self_attn.v_proj.*": f"{layer}.attention.self.value.*",
        "model.layers.*.self_attn.o_proj.*": f"{layer}.attention.output.dense.*",
        "model.layers.*.self_attn_norm.*": f"{layer}.attention.output.LayerNorm.*",
        "model.layers.*.mlp.up_proj.*": f"{layer}.intermediate.dense.*",
        "model.layers.*.mlp.down_proj.*": f"{layer}.output.dense.*",
        "model.layers.*.mlp_norm.*": f"{layer}.output.LayerNorm.*",
    }


ROBERTA_BODY = {
    **bert_body("roberta"),
    "model.positions.weight": ("roberta.embeddings.position_embeddings.weight", without_first_two),
}


def moved(rule, prefix):
    """A rule of RoBERTa for a model that calls its body otherwise."""
    name, *transform = (rule,) if isinstance(rule, str) else rule
    name = name.replace("roberta", prefix, 1)
    return (name, *transform) if transform else name


MPNET_LAYER = "mpnet.encoder.layer.*"
MPNET_BODY = {
    **bert_body("mpnet"),
    "model.positions.weight": ("mpnet.embeddings.position_embeddings.weight", without_first_two),
    "model.score_bias.table.weight": "mpnet.encoder.relative_attention_bias.weight",
    "model.layers.*.self_attn.q_proj.*": f"{MPNET_LAYER}.attention.attn.q.*",
    "model.layers.*.self_attn.k_proj.*": f"{MPNET_LAYER}.attention.attn.k.*",
    "model.layers.*.self_attn.v_proj.*": f"{MPNET_LAYER}.attention.attn.v.*",
    "model.layers.*.self_attn.o_proj.*": f"{MPNET_LAYER}.attention.attn.o.*",
    "model.layers.*.self_attn_norm.*": f"{MPNET_LAYER}.attention.LayerNorm.*",
}
DISTILBERT_LAYER = "distilbert.transformer.layer.*"
DISTILBERT_BODY = {
    "model.embed_tokens.weight": "distilbert.embeddings.word_embeddings.weight",
    "model.positions.weight": "distilbert.embeddings.position_embeddings.weight",
    "model.embed_norm.*": "distilbert.embeddings.LayerNorm.*",
    "model.layers.*.self_attn.q_proj.*": f"{DISTILBERT_LAYER}.attention.q_lin.*",
    "model.layers.*.self_attn.k_proj.*": f"{DISTILBERT_LAYER}.attention.k_lin.*",
    "model.layers.*.self_attn.v_proj.*": f"{DISTILBERT_LAYER}.attention.v_lin.*",
    "model.layers.*.self_attn.o_proj.*": f"{DISTILBERT_LAYER}.attention.out_lin.*",
    "model.layers.*.self_attn_norm.*": f"{DISTILBERT_LAYER}.sa_layer_norm.*",
    "model.layers.*.mlp.up_proj.*": f"{DISTILBERT_LAYER}.ffn.lin1.*",
    "model.layers.*.mlp.down_proj.*": f"{DISTILBERT_LAYER}.ffn.lin2.*",
    "model.layers.*.mlp_norm.*": f"{DISTILBERT_LAYER}.output_layer_norm.*",
}
MODERNBERT_BODY = {
    "model.embed_tokens.weight": "model.embeddings.tok_embeddings.weight",
    "model.embed_norm.*": "model.embeddings.norm.*",
    "model.layers.*.self_attn_norm.*": "model.layers.*.attn_norm.*",
    "model.layers.*.self_attn.q_proj.*": ("model.layers.*.attn.Wqkv.*", first_third),
    "model.layers.*.self_attn.k_proj.*": ("model.layers.*.attn.Wqkv.*", second_third),
    "model.layers.*.self_attn.v_proj.*": ("model.layers.*.attn.Wqkv.*", last_third),
    "model.layers.*.self_attn.o_proj.*": "model.layers.*.attn.Wo.*",
    "model.layers.*.mlp_norm.*": "model.layers.*.mlp_norm.*",
    "model.layers.*.mlp.gate_proj.*": ("model.layers.*.mlp.Wi.*", first_half),
    "model.layers.*.mlp.up_proj.*": ("model.layers.*.mlp.Wi.*", second_half),
    "model.layers.*.mlp.down_proj.*": "model.layers.*.mlp.Wo.*",
    "model.norm.*": "model.final_norm.*",
}
EUROBERT_BODY = {
    **same("model.embed_tokens.weight", "model.norm.weight"),
    **same("model.layers.*.self_attn.*.*", "model.layers.*.mlp.*.*"),
    "model.layers.*.self_attn_norm.weight": "model.layers.*.input_layernorm.weight",
    "model.layers.*.mlp_norm.weight": "model.layers.*.post_attention_layernorm.weight",
}
MEGATRON_BODY = {
    **bert_body("bert"),
    "model.layers.*.self_attn_norm.*": "bert.encoder.layer.*.attention.ln.*",
    "model.layers.*.mlp_norm.*": "bert.encoder.layer.*.ln.*",
    "model.norm.*": "bert.encoder.ln.*",
}
PRELAYERNORM = "roberta_prelayernorm"
PRELAYERNORM_BODY = {
    **bert_body(PRELAYERNORM),
    "model.positions.weight": (
        f"{PRELAYERNORM}.embeddings.position_embeddings.weight",
        without_first_two,
    ),
    "model.layers.*.self_attn_norm.*": f"{PRELAYERNORM}.encoder.layer.*.attention.LayerNorm.*",
    "model.layers.*.mlp_norm.*": f"{PRELAYERNORM}.encoder.layer.*.intermediate.LayerNorm.*",
    "model.norm.*": f"{PRELAYERNORM}.LayerNorm.*",
}
XL_BODY = {
    **{name: rule for name, rule in ROBERTA_BODY.items() if "embed_norm" not in name},
    "model.layers.*.self_attn_norm.*": "roberta.encoder.layer.*.attention.self_attn_layer_norm.*",
    "model.layers.*.mlp_norm.*": "roberta.encoder.layer.*.LayerNorm.*",
    "model.norm.*": "roberta.encoder.LayerNorm.*",
}


def rotary_body(prefix, mlp):
    """The names of transformers' modules, which are not those in its files."""
    layer = f"{prefix}.layers.*"
    return {
        "model.embed_tokens.weight": f"{prefix}.embeddings.word_embeddings.weight",
        "model.embed_types.weight": f"{prefix}.embeddings.token_type_embeddings.weight",
        "model.embed_norm.*": f"{prefix}.embeddings.LayerNorm.*",
        "model.layers.*.self_attn.*.*": f"{layer}.self_attn.*.*",
        "model.layers.*.self_attn_norm.*": f"{layer}.post_attention_layernorm.*",
        "model.layers.*.mlp_norm.*": f"{layer}.post_mlp_layernorm.*",
        **{f"model.layers.*.mlp.{ours}": f"{layer}.mlp.{theirs}" for ours, theirs in mlp.items()},
    }


GATED = {name: name for name in ("gate_proj.weight", "up_proj.weight", "down_proj.*")}
NOMIC_BODY = rotary_body("nomic_bert", GATED)
GTE_BODY = rotary_body("gte", GATED)
JINA_BODY = rotary_body("roberta", {"up_proj.*": "fc1.*", "down_proj.*": "fc2.*"})

GEMMA_BODY = {
    **same("model.embed_tokens.weight", "model.norm.weight"),
    **same("model.layers.*.self_attn.*.*", "model.layers.*.mlp.*.*"),
    "model.layers.*.self_attn_norm.weight": "model.layers.*.input_layernorm.weight",
    "model.layers.*.self_attn_output.weight": "model.layers.*.post_attention_layernorm.weight",
    "model.layers.*.mlp_norm.weight": "model.layers.*.pre_feedforward_layernorm.weight",
    "model.layers.*.mlp_output.weight": "model.layers.*.post_feedforward_layernorm.weight",
}

CLASSIFIER = {"classifier.out_proj.*": "classifier.*"}
ANSWERS = {"qa_outputs.out_proj.*": "qa_outputs.*"}
BERT_HEADS = {
    "ForMaskedLM": {
        "transform.dense.*": "cls.predictions.transform.dense.*",
        "transform.norm.*": "cls.predictions.transform.LayerNorm.*",
        "lm_head.*": "cls.predictions.decoder.*",
    },
    "ForSequenceClassification": {
        **CLASSIFIER,
        "classifier.transform.dense.*": "bert.pooler.dense.*",
    },
    "ForTokenClassification": CLASSIFIER,
    "ForQuestionAnswering": ANSWERS,
}
DENSE_AND_OUT = {
    "classifier.transform.dense.*": "classifier.dense.*",
    **same("classifier.out_proj.*"),
}
ROBERTA_HEADS = {
    "ForMaskedLM": {
        "transform.dense.*": "lm_head.dense.*",
        "transform.norm.*": "lm_head.layer_norm.*",
        "lm_head.*": "lm_head.decoder.*",
    },
    "ForSequenceClassification": DENSE_AND_OUT,
    "ForTokenClassification": CLASSIFIER,
    "ForQuestionAnswering": ANSWERS,
}
ELECTRA_HEADS = {
    **ROBERTA_HEADS,
    "ForMaskedLM": {
        "transform.dense.*": "generator_predictions.dense.*",
        "transform.norm.*": "generator_predictions.LayerNorm.*",
        "lm_head.*": "generator_lm_head.*",
    },
}
DISTILBERT_HEADS = {
    "ForMaskedLM": {
        "transform.dense.*": "vocab_transform.*",
        "transform.norm.*": "vocab_layer_norm.*",
        "lm_head.*": "vocab_projector.*",
    },
    "ForSequenceClassification": {**CLASSIFIER, "classifier.transform.dense.*": "pre_classifier.*"},
    "ForTokenClassification": CLASSIFIER,
    "ForQuestionAnswering": ANSWERS,
}
MODERNBERT_TRANSFORM = {"transform.dense.*": "head.dense.*", "transform.norm.*": "head.norm.*"}
MODERNBERT_CLASSIFIER = {
    **{f"classifier.{ours}": theirs for ours, theirs in MODERNBERT_TRANSFORM.items()},
    **CLASSIFIER,
}
MODERNBERT_HEADS = {
    "ForMaskedLM": {**MODERNBERT_TRANSFORM, "lm_head.*": "decoder.*"},
    "ForSequenceClassification": MODERNBERT_CLASSIFIER,
    "ForTokenClassification": MODERNBERT_CLASSIFIER,
    "ForQuestionAnswering": {
        ours.replace("classifier", "qa_outputs"): theirs
        for ours, theirs in MODERNBERT_CLASSIFIER.items()
    },
}


def bert_heads(prefix, norm="LayerNorm"):
    heads = {
        "ForMaskedLM": {
            **BERT_HEADS["ForMaskedLM"],
            "transform.norm.*": f"cls.predictions.transform.{norm}.*",
        },
        "ForSequenceClassification": {
            **CLASSIFIER,
            "classifier.transform.dense.*": f"{prefix}.pooler.dense.*",
        },
    }
    return {**BERT_HEADS, **heads}


NOMIC_HEADS = bert_heads("nomic_bert", "layer_norm")
GTE_HEADS = {**bert_heads("gte"), "ForMaskedLM": ROBERTA_HEADS["ForMaskedLM"]}
for heads in (NOMIC_HEADS, GTE_HEADS):
    del heads["ForQuestionAnswering"]
EUROBERT_HEADS = {
    "ForMaskedLM": same("lm_head.*"),
    "ForSequenceClassification": {**CLASSIFIER, "classifier.transform.dense.*": "dense.*"},
    "ForTokenClassification": CLASSIFIER,
}
# Of the biases of an MLP, GTE has the last.
ZERO_BIASES = ("model.layers.*.mlp.gate_proj.bias", "model.layers.*.mlp.up_proj.bias")
UNREAD = {"pooler.dense.*": "of the first token, which the hidden states leave out"}
UNTIED = {
    "cls.predictions.bias": "without tying, transformers makes it and leaves it",
    "lm_head.bias": "as above",
}

# The name in transformers' classes, the body, the heads, the fields of ours.
BERT = {
    "position_embedding_type": "learned",
    "sliding_window": None,
    "norm_type": "layernorm",
    "norm_position": "post",
    "embedding_norm": True,
    "mlp_type": "plain",
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
    "classifier_act": "tanh",
    "classifier_norm": False,
    "head_bias": True,
}
EPS = {"layer_norm_eps": 1e-3}
SIZES = {"vocab_size": 101, "hidden_size": 30, "intermediate_size": 37, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 3}
COMMON = {**SIZES, "max_position_embeddings": 13, "pad_token_id": 1}
COMMON |= {"bos_token_id": None, "eos_token_id": None, "num_labels": LABELS}
TYPES = {"type_vocab_size": 3}
BEHIND_PADDING = {"theirs": {"max_position_embeddings": 15}}
ROPE = {"rope_type": "default", "rope_theta": 50.0}
ROPES = {"full_attention": {**ROPE, "rope_theta": 500.0}, "sliding_attention": ROPE}
MODERN = {"norm_type": "layernorm_unbiased", "embedding_norm": True, "first_attention_norm": False}
KINDS = ["full_attention", "sliding_attention", "sliding_attention"]
GROUPED = {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8, "rms_norm_eps": 1e-3}

TURNING = {**BERT, "position_embedding_type": "rotary"}
UNBIASED = dict.fromkeys(("attention_bias", "attention_output_bias", "mlp_bias"), False)

FORMATS = {
    "ernie": ("Ernie", bert_body("ernie"), bert_heads("ernie"), {**EPS, **TYPES}, {"ours": BERT}),
    "megatron-bert": (
        "MegatronBert",
        MEGATRON_BODY,
        BERT_HEADS,
        {**EPS, **TYPES},
        {"ours": {**BERT, "norm_position": "pre", "embedding_norm": False}},
    ),
    "data2vec-text": (
        "Data2VecText",
        {name: moved(rule, "data2vec_text") for name, rule in ROBERTA_BODY.items()},
        ROBERTA_HEADS,
        {**EPS, **TYPES},
        {"ours": BERT},
    ),
    "roberta-prelayernorm": (
        "RobertaPreLayerNorm",
        PRELAYERNORM_BODY,
        ROBERTA_HEADS,
        {**EPS, **TYPES},
        {"ours": {**BERT, "norm_position": "pre"}},
    ),
    "xlm-roberta-xl": (
        "XLMRobertaXL",
        XL_BODY,
        ROBERTA_HEADS,
        {**EPS, **TYPES},
        {"ours": {**BERT, "norm_position": "pre", "embedding_norm": False}},
    ),
    "nomic_bert": (
        "NomicBert",
        NOMIC_BODY,
        NOMIC_HEADS,
        {**EPS, **TYPES, "rope_parameters": ROPE, "head_dim": 8},
        {
            "theirs": {"hidden_act": "silu"},
            "ours": {
                **TURNING,
                **UNBIASED,
                "mlp_type": "gated",
                "hidden_act": "silu",
                "head_act": "silu",
            },
        },
    ),
    "gte": (
        "Gte",
        GTE_BODY,
        GTE_HEADS,
        {**EPS, **TYPES, "rope_parameters": ROPE},
        {"ours": {**TURNING, "mlp_type": "gated"}},
    ),
    "jina_embeddings_v3": (
        "JinaEmbeddingsV3",
        JINA_BODY,
        ROBERTA_HEADS,
        {**EPS, **TYPES, "rope_parameters": ROPE},
        {"ours": TURNING},
    ),
    "bert": ("Bert", bert_body("bert"), BERT_HEADS, {**EPS, **TYPES}, {"ours": BERT}),
    "roberta": ("Roberta", ROBERTA_BODY, ROBERTA_HEADS, {**EPS, **TYPES}, {"ours": BERT}),
    "xlm-roberta": ("XLMRoberta", ROBERTA_BODY, ROBERTA_HEADS, {**EPS, **TYPES}, {"ours": BERT}),
    "camembert": ("Camembert", ROBERTA_BODY, ROBERTA_HEADS, {**EPS, **TYPES}, {"ours": BERT}),
    "mpnet": (
        "MPNet",
        MPNET_BODY,
        ROBERTA_HEADS,
        EPS,
        {"ours": {**BERT, "score_bias": "relative"}},
    ),
    "electra": (
        "Electra",
        bert_body("electra"),
        ELECTRA_HEADS,
        {**EPS, **TYPES},
        {"theirs": {"embedding_size": 30}, "ours": {**BERT, "classifier_act": "gelu"}},
    ),
    "distilbert": (
        "DistilBert",
        DISTILBERT_BODY,
        DISTILBERT_HEADS,
        {},
        {
            "theirs": {"hidden_dim": 37},
            "ours": {**BERT, "classifier_act": "relu", "layer_norm_eps": 1e-12},
        },
    ),
    "modernbert": (
        "ModernBert",
        MODERNBERT_BODY,
        MODERNBERT_HEADS,
        {"cls_token_id": None, "sep_token_id": None, "rope_parameters": ROPES},
        {
            "theirs": {"norm_eps": 1e-3, "local_attention": 4},
            "ours": {**MODERN, **EPS, "sliding_window": 3, "layer_types": KINDS},
        },
    ),
    "eurobert": (
        "EuroBert",
        EUROBERT_BODY,
        EUROBERT_HEADS,
        {**GROUPED, "rope_parameters": ROPE},
        {
            "theirs": {"hidden_act": "gelu", "mask_token_id": 2, "classifier_pooling": "bos"},
            "ours": {
                "sliding_window": None,
                "head_act": None,
                "lm_head_bias": False,
                "classifier_norm": False,
                "head_bias": True,
            },
        },
    ),
    "embeddinggemma": (
        "Gemma3Text",
        GEMMA_BODY,
        {},
        {**GROUPED, "layer_types": KINDS, "rope_parameters": ROPES},
        {
            "theirs": {
                "use_bidirectional_attention": True,
                "query_pre_attn_scalar": 7,
                "sliding_window": 4,
            },
            "ours": {
                "norm_type": "rmsnorm_offset",
                "norm_position": "both",
                "qk_norm": True,
                "scale_embedding": True,
                "hidden_act": "gelu_pytorch_tanh",
                "attention_scale": 7**-0.5,
                "sliding_window": 3,
            },
        },
    ),
}
for form in (
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "data2vec-text",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
):
    FORMATS[form][-1]["theirs"] = {"max_position_embeddings": 15}


def case(form, head, theirs=None, ours=None, **both):
    """`head` is what their class and ours are called behind the name: Model, ForMaskedLM..."""
    name, _, _, fields, of_one = FORMATS[form]
    labels = {"num_labels": 2} if head == "ForQuestionAnswering" else {}
    tied = {"tie_word_embeddings": True}
    return Case(
        (getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}{head}")),
        (TformerEncoderConfig, getattr(hf_tformer, f"TformerEncoder{head}")),
        {**COMMON, **fields, **labels, **tied, **both},
        theirs={**of_one.get("theirs", {}), **(theirs or {})},
        ours={**of_one["ours"], **(ours or {})},
    )


def without_prefix(rule):
    theirs, *transform = (rule,) if isinstance(rule, str) else rule
    bare = theirs.split(".", 1)[1]
    return (bare, *transform) if transform else bare


for name, body, heads, *_ in FORMATS.values():
    base = {ours.split(".", 1)[1]: without_prefix(rule) for ours, rule in body.items()}
    constant = ZERO_BIASES if name == "Gte" else ()
    bare = tuple(name.removeprefix("model.") for name in constant)
    TABLES[f"{name}Model"] = Table(base, ignored=UNREAD, constant=bare)
    for head, rules in heads.items():
        TABLES[f"{name}{head}"] = Table({**body, **rules}, ignored=UNTIED, constant=constant)

CASES = {
    f"{form} {head}": case(form, head)
    for form, (name, _, heads, *_) in FORMATS.items()
    for head in ("Model", *heads)
    if hasattr(transformers, name + head)  # an older transformers may not know all
}
# What changes one of these, by the values that released models have or could have.
CASES |= {
    "bert untied": case("bert", "ForMaskedLM", tie_word_embeddings=False),
    "bert other activation": case(
        "bert", "ForMaskedLM", hidden_act="relu", ours={"head_act": "relu"}
    ),
    "roberta other activation": case("roberta", "ForMaskedLM", hidden_act="relu"),
    "roberta untied": case("roberta", "ForMaskedLM", tie_word_embeddings=False),
    "distilbert other activation": case(
        "distilbert",
        "ForMaskedLM",
        theirs={"activation": "relu"},
        ours={"hidden_act": "relu", "head_act": "relu"},
    ),
    "modernbert all biases": case(
        "modernbert",
        "ForMaskedLM",
        theirs={"norm_bias": True, "classifier_bias": True, "decoder_bias": False},
        ours={
            "norm_type": "layernorm",
            "head_bias": True,
            "attention_output_bias": True,
            "lm_head_bias": False,
        },
        attention_bias=True,
        mlp_bias=True,
    ),
    "modernbert mean": case("modernbert", "ForSequenceClassification", classifier_pooling="mean"),
    "modernbert other activations": case(
        "modernbert",
        "ForTokenClassification",
        theirs={"hidden_activation": "silu", "classifier_activation": "relu"},
        ours={"hidden_act": "silu", "head_act": "relu", "classifier_act": "relu"},
    ),
    "eurobert mean": case(
        "eurobert",
        "ForSequenceClassification",
        theirs={"classifier_pooling": "mean"},
        ours={"classifier_pooling": "mean"},
    ),
    "embeddinggemma biases": case(
        "embeddinggemma",
        "Model",
        attention_bias=True,
        layer_types=["sliding_attention"] * 3,
        ours={"attention_output_bias": True},
    ),
    "eurobert biases": case(
        "eurobert",
        "ForMaskedLM",
        attention_bias=True,
        mlp_bias=True,
        ours={"attention_output_bias": True, "lm_head_bias": True},
    ),
}


def padded_batch(config, head):
    """Padding on the right, where BERT counts positions as we do, and what the head learns from."""
    ids = random_ids(len(LENGTHS), max(LENGTHS))
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    batch = {
        "input_ids": ids.masked_fill(mask == 0, config.pad_token_id),
        "attention_mask": mask,
    }
    if getattr(config, "type_vocab_size", 0) > 1:
        batch["token_type_ids"] = random_ids(len(LENGTHS), max(LENGTHS), 1) % config.type_vocab_size
    return batch | labels_for(head, ids, mask)


def labels_for(head, ids, mask):
    """Answers to questions are scored among the tokens of padding too, so they come without any."""
    if head == "ForMaskedLM":
        return {"labels": ids.masked_fill((mask == 0) | (ids % 3 > 0), -100)}
    if head == "ForSequenceClassification":
        return {"labels": torch.tensor([0, 4, 2])}
    if head == "ForTokenClassification":
        return {"labels": (ids % LABELS).masked_fill(mask == 0, -100)}
    return {}


def even_batch():
    """Questions with their answers."""
    ids = random_ids(3, 11)
    places = {"start_positions": torch.tensor([9, 0, 2]), "end_positions": torch.tensor([1, 3, 2])}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **places}
