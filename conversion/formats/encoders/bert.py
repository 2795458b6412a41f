"""BERT, ELECTRA's discriminators, RoBERTa, CamemBERT, MPNet and DistilBERT.

RoBERTa and its kin count positions from behind the padding id.
"""

from functools import partial

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError, UnexpressibleError
from ...engine.format import BIASES, Table, carry, inverted, require, same
from ...engine.heads import Head
from ...engine.rules import Rule, linear, linears, replaced
from ...engine.transforms import DropPadding, FirstOfTwo
from ..shared import LAYER
from ..shared_encoders import (
    SHARED_FIELDS,
    encoder_format,
    heads_of,
    more_ids,
    text_classifier,
    transform,
)

# Layers that norm what they add, absolute positions.
FIXED = {
    "position_embedding_type": "learned",
    "sliding_window": None,
    "norm_type": "layernorm",
    "norm_position": "post",
    "embedding_norm": True,
    "mlp_type": "plain",
    **dict.fromkeys((*BIASES, "lm_head_bias", "head_bias"), True),
    "classifier_pooling": "cls",
    "classifier_norm": False,
}
# ours → theirs
FIELDS = {
    **SHARED_FIELDS,
    **same("intermediate_size", "hidden_act", "layer_norm_eps"),
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
TYPED_FIELDS = {**FIELDS, **same("type_vocab_size")}
DISTILBERT_FIELDS = {
    **SHARED_FIELDS,
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    **same("dropout", "attention_dropout"),
}
# our module → theirs, in a layer
BERT_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.o_proj": "attention.output.dense",
    "self_attn_norm": "attention.output.LayerNorm",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
MPNET_LAYER = {
    **BERT_LAYER,
    **{f"self_attn.{x}_proj": f"attention.attn.{x}" for x in "qkvo"},
    "self_attn_norm": "attention.LayerNorm",
}
DISTILBERT_LAYER = {
    **{f"self_attn.{x}_proj": f"attention.{x}_lin" for x in "qkv"},
    "self_attn.o_proj": "attention.out_lin",
    "self_attn_norm": "sa_layer_norm",
    "mlp.up_proj": "ffn.lin1",
    "mlp.down_proj": "ffn.lin2",
    "mlp_norm": "output_layer_norm",
}
BUCKETS = 32  # of distances in MPNet; more of them would not be read


def body(prefix: str, layer: dict[str, str], stack: str = "encoder") -> tuple[Rule, ...]:
    return (
        Rule("model.embed_tokens.weight", f"{prefix}.embeddings.word_embeddings.weight"),
        Rule("model.positions.weight", f"{prefix}.embeddings.position_embeddings.weight"),
        *linear("model.embed_norm", f"{prefix}.embeddings.LayerNorm"),
        *linears(LAYER, f"{prefix}.{stack}.layer.{{i}}", layer),
    )


def types(prefix: str) -> Rule:
    return Rule("model.embed_types.weight", f"{prefix}.embeddings.token_type_embeddings.weight")


def behind_padding(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules of a body whose positions begin behind that of padding."""
    positions = next(rule for rule in rules if rule.ours == "model.positions.weight")
    return replaced(rules, Rule(positions.ours, positions.theirs, DropPadding()))


def dropped(what: str, *modules: str) -> dict[str, str]:
    """Return the tensors of modules that have no place in ours, and what they were for."""
    return {f"{name}.{kind}": what for name in modules for kind in ("weight", "bias")}


def pooler(prefix: str) -> dict[str, str]:
    names = ("pooler.dense", f"{prefix}.pooler.dense")
    return dropped("the pooler, which no answer of this model passes through", *names)


def buffers(prefix: str) -> dict[str, str]:
    return {
        f"{place}embeddings.{name}": "counted, or zeros"
        for name in ("position_ids", "token_type_ids")
        for place in ("", f"{prefix}.")
    }


def masked(dense: str, norm: str, projection: str, bias: str) -> Table:
    """Return the rules of a head whose projection onto the vocabulary has a bias of two names.

    If the head is tied to the embeddings, so are the two names; else nothing reads the second.
    """

    def rules(theirs: Config) -> tuple[Rule, ...]:
        one = Rule("lm_head.bias", bias)
        two = Rule("lm_head.bias", (f"{projection}.bias", bias), FirstOfTwo())
        weight = Rule("lm_head.weight", f"{projection}.weight")
        return *transform(dense, norm), weight, one if theirs.tie_word_embeddings else two

    return rules


def refuse_other_positions(theirs: Config) -> None:
    """Refuse a field of old configurations, which transformers of today reads and ignores."""
    kind = getattr(theirs, "position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnexpressibleError("position_embedding_type", kind, "hf_tformer", ("absolute",))


def require_types(config: Config, format_name: str) -> None:
    if config.type_vocab_size < 1:
        raise ConversionError(
            f"type_vocab_size is {config.type_vocab_size}, which {format_name} cannot express: it "
            "has at least one kind of segment"
        )


def to_ours(theirs: Config, classifier_act: str, head_act: str | None = None) -> Fields:
    """Return our fields; `head_act` is None where the head takes the activation of the layers."""
    require(theirs, "hf_tformer", is_decoder=False, add_cross_attention=False)
    refuse_other_positions(theirs)
    require_types(theirs, "hf_tformer")
    return {
        **FIXED,
        **carry(theirs, inverted(TYPED_FIELDS)),
        **more_ids(theirs),
        "classifier_act": classifier_act,
        "head_act": head_act or theirs.hidden_act,
    }


def to_theirs(ours: Config, format_name: str) -> Fields:
    require_types(ours, format_name)
    return {**carry(ours, TYPED_FIELDS), **more_ids(ours)}


def electra_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", embedding_size=theirs.hidden_size)
    return to_ours(theirs, "gelu", "gelu")


def electra_to_theirs(ours: Config) -> Fields:
    return {**to_theirs(ours, "ELECTRA"), "embedding_size": ours.hidden_size}


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
    return {**to_ours(theirs, "tanh", "gelu"), **positions_to_ours(theirs)}


def roberta_to_theirs(ours: Config, format_name: str) -> Fields:
    return {**to_theirs(ours, format_name), **positions_to_theirs(ours, format_name)}


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


def roberta_heads(prefix: str) -> dict[str, Head]:
    return heads_of(
        prefix,
        masked("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
        texts=text_classifier("classifier.dense", "classifier.out_proj"),
    )


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
# Pretraining predicts tokens and, by the pooler, whether two sentences belong together.
BERT_HEADS["BertForPreTraining"] = BERT_HEADS["BertForMaskedLM"]
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

ROBERTA_BODY = (*behind_padding(body("roberta", BERT_LAYER)), types("roberta"))
MPNET_BODY = (
    *behind_padding(body("mpnet", MPNET_LAYER)),
    Rule("model.score_bias.table.weight", "mpnet.encoder.relative_attention_bias.weight"),
)
ROBERTAS = (
    ("roberta", "Roberta", "RoBERTa, DistilRoBERTa, CodeBERT"),
    ("xlm-roberta", "XLMRoberta", "XLM-RoBERTa, BGE-M3, multilingual E5"),
    ("camembert", "Camembert", "CamemBERT"),
)
FORMATS = (
    encoder_format(
        "bert",
        "Bert",
        "bert",
        (*body("bert", BERT_LAYER), types("bert")),
        partial(to_ours, classifier_act="tanh"),
        partial(to_theirs, format_name="BERT"),
        BERT_HEADS,
        "BERT, multilingual BERT, MiniLM, BGE, E5, SciBERT",
        buffers("bert"),
        {
            **pooler("bert"),
            **dropped("the guess whether two sentences belong together", "cls.seq_relationship"),
        },
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
    *(
        encoder_format(
            name,
            prefix,
            "roberta",
            ROBERTA_BODY,
            roberta_to_ours,
            partial(roberta_to_theirs, format_name=prefix),
            roberta_heads(prefix),
            released,
            buffers("roberta"),
            pooler("roberta"),
            lambda theirs: theirs.pad_token_id + 1,
        )
        for name, prefix, released in ROBERTAS
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
