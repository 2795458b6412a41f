"""What the formats of encoders share: fields, heads, and the rules of heads."""

from collections.abc import Callable

from ..engine.aliases import Config, Fields
from ..engine.format import ENCODER, Table, same, without
from ..engine.heads import ANSWERS, BASE, MASKED, TEXTS, TOKENS, FormatWithHeads, Head
from ..engine.rules import Rule, linear
from .shared import COMMON_FIELDS

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
    answers: tuple[Rule, ...] = QUESTIONS,
) -> dict[str, Head]:
    """Return the heads of a format by transformers' names, and what each adds to the table."""
    # Readers of these fields that classify sequences, as vLLM does, must find this folder's head.
    bare = {"classifier_act": None} if tokens is CLASSIFIER else {}
    heads = (
        Head(f"{prefix}Model", BASE),
        Head(f"{prefix}ForMaskedLM", MASKED, masked),
        Head(f"{prefix}ForSequenceClassification", TEXTS, texts),
        Head(f"{prefix}ForTokenClassification", TOKENS, tokens, fields=bare),
        Head(f"{prefix}ForQuestionAnswering", ANSWERS, answers, {"num_labels": (2,)}, bare),
    )
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
