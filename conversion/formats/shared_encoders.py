"""What the formats of encoders share: fields, heads, and the rules of heads."""

from collections.abc import Callable

from ..engine.aliases import Config, Fields
from ..engine.errors import ConversionError, UnexpressibleError
from ..engine.format import BIASES, ENCODER, Table, carry, inverted, require_one_of, same, without
from ..engine.heads import ANSWERS, BASE, MASKED, TEXTS, TOKENS, FormatWithHeads, Head
from ..engine.rules import Rule, linear, linears
from ..engine.transforms import FirstOfTwo
from .shared import COMMON_FIELDS, LAYER

MORE_IDS = ("cls_token_id", "sep_token_id", "mask_token_id")  # in few configurations
SHARED_FIELDS = {
    **without(COMMON_FIELDS, "use_cache"),
    **same(
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "initializer_range",
        "id2label",
        "label2id",
        "problem_type",
    ),
}
CLASSIFIER = linear("classifier.out_proj", "classifier")
QUESTIONS = linear("qa_outputs.out_proj", "qa_outputs")


def more_ids(config: Config) -> Fields:
    """Return the special tokens of a configuration, which its class may not declare."""
    found = {name: getattr(config, name, None) for name in MORE_IDS}
    return {name: token for name, token in found.items() if token is not None}


def heads_of(
    prefix: str,
    masked: Table,
    texts: tuple[Rule, ...],
    tokens: tuple[Rule, ...] = CLASSIFIER,
    answers: tuple[Rule, ...] | None = QUESTIONS,
) -> dict[str, Head]:
    """Return the heads of a format by transformers' names, and what each adds to the table.

    Without `answers` transformers has no head for questions.
    """
    # Readers of these fields that classify sequences, as vLLM does, must find this folder's head.
    bare = {"classifier_act": None} if tokens is CLASSIFIER else {}
    heads = [
        Head(f"{prefix}Model", BASE),
        Head(f"{prefix}ForMaskedLM", MASKED, masked),
        Head(f"{prefix}ForSequenceClassification", TEXTS, texts),
        Head(f"{prefix}ForTokenClassification", TOKENS, tokens, fields=bare),
    ]
    if answers is not None:
        name = f"{prefix}ForQuestionAnswering"
        heads.append(Head(name, ANSWERS, answers, {"num_labels": (2,)}, bare))
    return {head.theirs: head for head in heads}


def transform(dense: str, norm: str, within: str = "") -> tuple[Rule, ...]:
    """Return rules of dense → activation → norm, in front of the head or within a classifier."""
    ours = f"{within}.transform" if within else "transform"
    return (*linear(f"{ours}.dense", dense), *linear(f"{ours}.norm", norm))


def text_classifier(dense: str, projection: str) -> tuple[Rule, ...]:
    """Return rules of dense → activation → projection, as in all formats but ModernBERT."""
    return (
        *linear("classifier.transform.dense", dense),
        *linear("classifier.out_proj", projection),
    )


# BERT and its kin.
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
DECODES = ("is_decoder", "add_cross_attention")  # which newer configurations lack
# ours → theirs
FIELDS = {
    **SHARED_FIELDS,
    **same("intermediate_size", "hidden_act", "layer_norm_eps"),
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
TYPED_FIELDS = {**FIELDS, **same("type_vocab_size")}
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


def body(prefix: str, layer: dict[str, str], stack: str = "encoder") -> tuple[Rule, ...]:
    return (
        Rule("model.embed_tokens.weight", f"{prefix}.embeddings.word_embeddings.weight"),
        Rule("model.positions.weight", f"{prefix}.embeddings.position_embeddings.weight"),
        *linear("model.embed_norm", f"{prefix}.embeddings.LayerNorm"),
        *linears(LAYER, f"{prefix}.{stack}.layer.{{i}}", layer),
    )


def types(prefix: str) -> Rule:
    return Rule("model.embed_types.weight", f"{prefix}.embeddings.token_type_embeddings.weight")


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


def bert_to_ours(theirs: Config, classifier_act: str, head_act: str | None = None) -> Fields:
    """Return our fields; `head_act` is None where the head takes the activation of the layers."""
    require_one_of(
        theirs, "hf_tformer", is_decoder=(False, None), add_cross_attention=(False, None)
    )
    refuse_other_positions(theirs)
    require_types(theirs, "hf_tformer")
    return {
        **FIXED,
        **carry(theirs, inverted(TYPED_FIELDS)),
        **more_ids(theirs),
        "classifier_act": classifier_act,
        "head_act": head_act or theirs.hidden_act,
    }


def bert_to_theirs(ours: Config, format_name: str) -> Fields:
    require_types(ours, format_name)
    return {**carry(ours, TYPED_FIELDS), **more_ids(ours)}


def bert_heads(
    prefix: str, within: str, norm: str = "LayerNorm", answers: tuple[Rule, ...] | None = QUESTIONS
) -> dict[str, Head]:
    """Return the heads of models that classify by a pooler and predict tokens as BERT does."""
    head = "cls.predictions"
    transformed = (f"{head}.transform.dense", f"{head}.transform.{norm}")
    return heads_of(
        prefix,
        masked(*transformed, f"{head}.decoder", f"{head}.bias"),
        texts=text_classifier(f"{within}.pooler.dense", "classifier"),
        answers=answers,
    )


def roberta_heads(prefix: str) -> dict[str, Head]:
    return heads_of(
        prefix,
        masked("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
        texts=text_classifier("classifier.dense", "classifier.out_proj"),
    )


def encoder_format(
    name: str,
    prefix: str,
    within: str,
    body: tuple[Rule, ...],
    config_to_ours: Callable[[Config], Fields],
    config_to_theirs: Callable[[Config], Fields],
    heads: dict[str, Head],
    released: str,
    ignored: dict[str, str] | None = None,
    dropped: dict[str, str] | None = None,
    first_position: Callable[[Config], int] = lambda theirs: 0,
) -> FormatWithHeads:
    """Return the format of an encoder whose classes begin with `prefix`.

    `within` is what stands before the names of the body beside a head.
    """
    return FormatWithHeads(
        name,
        body,
        config_to_ours,
        config_to_theirs,
        (f"{prefix}Config", f"{prefix}Model"),
        ENCODER,
        ignored or {},
        dropped=dropped or {},
        first_position=first_position,
        released=released,
        prefix=within,
        heads=heads,
    )
