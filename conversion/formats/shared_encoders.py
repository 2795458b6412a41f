"""What the formats of encoders share: fields, heads, and what each of our heads reads."""

from collections.abc import Callable

from ..engine.aliases import Config, Fields
from ..engine.errors import ConversionError, UnexpressibleError
from ..engine.format import ENCODER
from ..engine.heads import Head
from ..engine.rules import Rule, linear
from ..engine.transforms import FirstOfTwo

# Under one name on both sides, whatever the format.
IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
MORE_IDS = ("cls_token_id", "sep_token_id", "mask_token_id")  # in few configurations
LABELS = ("id2label", "label2id", "problem_type")
SHARED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "tie_word_embeddings",
    "initializer_range",
    *IDS,
    *LABELS,
)
BASE = ENCODER.model_name
MASKED, TEXTS, TOKENS, ANSWERS = (
    f"TformerEncoderFor{task}"
    for task in (
        "MaskedLM",
        "SequenceClassification",
        "TokenClassification",
        "QuestionAnswering",
    )
)
OUR_CLASSES = (BASE, MASKED, TEXTS, TOKENS, ANSWERS)

# Of BERT and all that are built like it: layers that norm what they add, absolute positions.
LIKE_BERT = {
    "position_embedding_type": "learned",
    "sliding_window": None,
    "norm_type": "layernorm",
    "norm_position": "post",
    "embedding_norm": True,
    "mlp_type": "plain",
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
    "lm_head_bias": True,
    "classifier_pooling": "cls",
    "classifier_norm": False,
    "head_bias": True,
}
BERT_FIELDS = {
    **{name: name for name in SHARED},
    **{name: name for name in ("intermediate_size", "hidden_act", "layer_norm_eps")},
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
ENCODERS_ALONE = {"is_decoder": False, "add_cross_attention": False}


def more_ids(config: Config) -> Fields:
    """The special tokens that this configuration names though its class may not know them."""
    found = {name: getattr(config, name, None) for name in MORE_IDS}
    return {name: token for name, token in found.items() if token is not None}


def refuse_other_positions(theirs: Config) -> None:
    """Of old configurations: transformers of today reads the words and computes something else."""
    kind = getattr(theirs, "position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnexpressibleError("position_embedding_type", kind, "hf_tformer", ("absolute",))


def require_types(config: Config, reader: str) -> None:
    if config.type_vocab_size < 1:
        raise ConversionError(
            f"type_vocab_size is {config.type_vocab_size}, which {reader} cannot express: it has "
            "at least one kind of segment"
        )


HEAD_FIELDS = {
    "head_act",
    "lm_head_bias",
    "tie_word_embeddings",
    "classifier_act",
    "classifier_norm",
    "classifier_pooling",
    "head_bias",
}


def unread_fields(ours: Config, class_name: str) -> set[str]:
    """Fields of the heads that one of our classes does not read."""
    read = {
        BASE: set(),
        MASKED: {"head_act", "lm_head_bias", "tie_word_embeddings"},
        TEXTS: {"classifier_pooling", "classifier_act"},
    }.get(class_name, {"classifier_norm"})
    if class_name == MASKED and ours.head_act:
        read = read | {"head_bias"}
    if class_name == TEXTS and ours.classifier_act:
        read = read | {"classifier_norm", "head_bias"}
    if class_name in (TOKENS, ANSWERS) and ours.classifier_norm:
        read = read | {"classifier_act", "head_bias"}
    return HEAD_FIELDS - read


CLASSIFIER = linear("classifier.out_proj", "classifier")


def heads_of(
    name: str,
    masked: tuple[Rule, ...] | Callable,
    texts: tuple[Rule, ...],
    tokens: tuple[Rule, ...] = CLASSIFIER,
    answers: tuple[Rule, ...] = linear("qa_outputs.out_proj", "qa_outputs"),
) -> dict[str, Head]:
    """The heads of a format by transformers' usual names, and what each adds to the table."""
    # Who reads these fields to classify texts, as vLLM does, has to find the head of this folder.
    bare = {"classifier_act": None} if tokens is CLASSIFIER else {}
    heads = {
        "Model": Head(f"{name}Model", BASE),
        "ForMaskedLM": Head(f"{name}ForMaskedLM", MASKED, masked),
        "ForSequenceClassification": Head(f"{name}ForSequenceClassification", TEXTS, texts),
        "ForTokenClassification": Head(
            f"{name}ForTokenClassification", TOKENS, tokens, fields=bare
        ),
        "ForQuestionAnswering": Head(
            f"{name}ForQuestionAnswering", ANSWERS, answers, {"num_labels": (2,)}, bare
        ),
    }
    return {f"{name}{task}": head for task, head in heads.items()}


def dropped(what: str, *modules: str) -> dict[str, str]:
    """What a module was for, by its tensors."""
    return {f"{name}.{kind}": what for name in modules for kind in ("weight", "bias")}


def transform(dense: str, norm: str, within: str = "") -> tuple[Rule, ...]:
    """dense → activation → norm, before a projection: of the model, or within a classifier."""
    ours = f"{within}.transform" if within else "transform"
    return (*linear(f"{ours}.dense", dense), *linear(f"{ours}.norm", norm))


def text_classifier(dense: str, projection: str) -> tuple[Rule, ...]:
    """dense → activation → projection, as all but ModernBERT's classes of texts."""
    return (
        *linear("classifier.transform.dense", dense),
        *linear("classifier.out_proj", projection),
    )


def masked(dense: str, norm: str, projection: str, bias: str) -> Callable:
    """The rules of a head whose projection onto words has a bias under two names.

    Where it is tied to the embeddings, so are the two names; else nothing reads the second.
    """

    def rules(theirs: Config) -> tuple[Rule, ...]:
        one = Rule("lm_head.bias", bias)
        two = Rule("lm_head.bias", (f"{projection}.bias", bias), FirstOfTwo())
        weight = Rule("lm_head.weight", f"{projection}.weight")
        return *transform(dense, norm), weight, one if theirs.tie_word_embeddings else two

    return rules
