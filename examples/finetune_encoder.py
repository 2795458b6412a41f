"""An encoder that classifies texts, or tags each part of a text.

    python examples/finetune_encoder.py                    # in which language is this date written?
    python examples/finetune_encoder.py --tags                  # which part of it is the month?
    python examples/finetune_encoder.py encoder --data reviews.tsv       # a text and its class
    python examples/finetune_encoder.py encoder --tags --data names.jsonl

Without a MODEL a small one is made and trained on nothing else. An example is a text and its class,
in two columns of a .tsv or .csv or in the fields of a .jsonl; for --tags a .jsonl with two lists,
words and tags: {"words": ["Ada", "lived", "here"], "tags": ["name", "other", "other"]}.
"""

import random
from argparse import Namespace
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from data import ENCODER_TOKENS, parse_json, read_pairs, read_text, train_tokenizer
from dates import WITH_WEEKDAY, date_pairs, tagged_dates
from program import Model, ProgramError, Tokenizer, Trainer, at_least, make_parser, run, share
from training import (
    add_training_flags,
    make_trainer,
    run_folder,
    save_and_publish,
    small_encoder_config,
)

from hf_tformer.opening import open_pretrained

if TYPE_CHECKING:
    from transformers import EvalPrediction

IGNORED = -100
Example = tuple[Sequence[str], Sequence[str]]  # words and labels; a text is one word with one label


def main() -> None:
    args = parse_arguments()
    with run_folder(args) as checkpoint:
        examples = read_examples(args)
        labels = sorted({label for _, found in examples for label in found})
        if len(labels) < 2:
            raise ProgramError(
                f"the data has one class alone, {labels}: give examples of two or more"
            )
        random.Random(args.seed).shuffle(examples)
        kept = max(1, round(args.validation * len(examples)))
        training, validation = examples[kept:], examples[:kept]
        tokenizer = open_tokenizer(args, checkpoint, training)
        model = build_model(args, checkpoint, tokenizer, labels)
        trainer = prepare_trainer(args, model, tokenizer, training, validation)
        if trainer.is_world_process_zero():
            counts = f"{len(training)} examples to train on, {kept} to evaluate on"
            print(f"{len(labels)} classes, {counts}")
        trainer.train(resume_from_checkpoint=checkpoint)
        accuracy = trainer.evaluate()["eval_accuracy"]
        if not trainer.is_world_process_zero():
            return  # of several processes, the first one saves
        print(f"\naccuracy on examples that it has not seen: {accuracy:.2%}")
        save_and_publish(args, trainer.model, tokenizer)
        print(show(args, trainer.model, tokenizer, validation[0]))


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__, "[MODEL] [options]")
    parser.add_argument("model", nargs="?", help="folder or repository of an encoder")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
    add = parser.add_argument_group("the data (default: dates in sixteen languages)").add_argument
    add("--data", help="a .tsv, .csv or .jsonl file")
    add("--tags", action="store_true", help="classes of words, not of whole texts")
    add("--columns", nargs=2, default=["text", "label"], metavar="NAME", help="names of columns")
    add("--number_of_dates", type=at_least(2), default=12000, help="number of dates to draw")
    add("--max_length", type=at_least(2), default=128, help="tokens that longer texts are cut to")
    add("--validation", type=share, default=0.1, help="share of examples kept for evaluation")
    add_training_flags(parser, "classifier", epochs=3)
    return parser.parse_args()


def read_examples(args: Namespace) -> list[Example]:
    if args.tags:
        if args.data:
            return read_tagged(args.data)
        return [(date.words, date.tags) for date in tagged_dates(args.number_of_dates, args.seed)]
    if args.data:
        return [([text], [label]) for text, label in read_pairs(args.data, args.columns)]
    dates = date_pairs(args.number_of_dates, args.seed, WITH_WEEKDAY)["train"]
    return [([date.source], [date.language]) for date in dates]


def read_tagged(path: str) -> list[Example]:
    """Join words by blanks, which have no tag of their own."""
    examples = []
    for number, line in enumerate(filter(None, read_text(path).splitlines()), 1):
        row = parse_json(path, number, line)
        words, tags = (
            row.get(name) if isinstance(row, dict) else None for name in ("words", "tags")
        )
        if not (is_texts(words) and is_texts(tags) and len(words) == len(tags)):
            raise ProgramError(
                f'line {number} of {path} is no {{"words": [...], "tags": [...]}} of equal length'
            )
        examples.append(([words[0], *(f" {word}" for word in words[1:])], tags))
    return examples


def is_texts(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(v, str) for v in value)


def open_tokenizer(args: Namespace, checkpoint: str | None, examples: list[Example]) -> Tokenizer:
    from transformers import AutoTokenizer

    if source := checkpoint or args.model:
        revision = None if checkpoint else args.revision
        tokenizer = open_pretrained(AutoTokenizer, source, revision=revision)
        if not tokenizer.is_fast or tokenizer.pad_token_id is None:
            raise ProgramError(f"the tokenizer of {source} has no padding token, or no offsets")
        return tokenizer
    return train_tokenizer(["".join(words) for words, _ in examples], 1000, ENCODER_TOKENS)


def build_model(
    args: Namespace, checkpoint: str | None, tokenizer: Tokenizer, labels: list[str]
) -> Model:
    from transformers import (
        AutoConfig,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        set_seed,
    )

    set_seed(args.seed)
    auto = AutoModelForTokenClassification if args.tags else AutoModelForSequenceClassification
    if checkpoint:
        return auto.from_config(open_pretrained(AutoConfig, checkpoint))
    numbers = {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    if args.model:
        return open_pretrained(auto, args.model, revision=args.revision, **numbers)
    fields = {"classifier_pooling": "mean", "dropout": 0.1, **numbers}
    return auto.from_config(small_encoder_config(tokenizer, **fields))


def prepare_trainer(
    args: Namespace, model: Model, tokenizer: Tokenizer, *splits: list[Example]
) -> Trainer:
    from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

    numbers = model.config.label2id
    options = {"truncation": True, "max_length": args.max_length, "return_token_type_ids": False}

    def prepare(words: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
        row = tokenizer("".join(words), return_offsets_mapping=args.tags, **options)
        found = [numbers[label] for label in labels]
        labels = tags_of(row.pop("offset_mapping"), words, found) if args.tags else found[0]
        return {**row, "labels": labels}

    training, validation = ([prepare(*example) for example in examples] for examples in splits)
    collator = DataCollatorForTokenClassification if args.tags else DataCollatorWithPadding
    return make_trainer(
        args,
        model,
        tokenizer,
        {"train_sampling_strategy": "group_by_length"},
        train_dataset=training,
        eval_dataset=validation,
        data_collator=collator(tokenizer),
        compute_metrics=accuracy,
    )


def tags_of(places: list[tuple[int, int]], words: Sequence[str], labels: list[int]) -> list[int]:
    """Give each token the tag of the word that its last letter belongs to."""
    ends, tags = list(accumulate(map(len, words))), []
    for start, end in places:
        word = next((index for index, last in enumerate(ends) if end <= last), None)
        tags.append(IGNORED if start == end or word is None else labels[word])
    return tags


def accuracy(prediction: "EvalPrediction") -> dict[str, float]:
    found, labels = prediction.predictions.argmax(-1), prediction.label_ids
    counted = labels != IGNORED
    return {"accuracy": float((found == labels)[counted].mean())}


def show(args: Namespace, model: Model, tokenizer: Tokenizer, example: Example) -> str:
    """Describe the answer of transformers' pipeline to one text, as users of the folder ask it."""
    from transformers import pipeline

    text = "".join(example[0])
    if not args.tags:
        best = pipeline("text-classification", model=model, tokenizer=tokenizer)(text)[0]
        return f"{text!r} is {best['label']} ({best['score']:.1%})"
    ask = pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple"
    )
    found = ", ".join(f"{part['word'].strip()!r} {part['entity_group']}" for part in ask(text))
    return f"{text!r}: {found}"


if __name__ == "__main__":
    run(main)
