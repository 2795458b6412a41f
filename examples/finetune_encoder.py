"""An encoder that sorts texts into classes, or says what each part of a text is.

    python examples/finetune_encoder.py                    # in which language is this date written?
    python examples/finetune_encoder.py --tags                  # which part of it is the month?
    python examples/finetune_encoder.py encoder --data reviews.tsv       # a text and its class
    python examples/finetune_encoder.py encoder --tags --data names.jsonl

Without a MODEL a small one is made and learns from nothing else. A row of data is a text and its
class, in two columns of a .tsv or .csv or in the fields of a .jsonl; for --tags a .jsonl with two
lists, words and tags: {"words": ["Ada", "lived", "here"], "tags": ["name", "other", "other"]}.
"""

import argparse
import random
from itertools import accumulate

from corpus import train_tokenizer
from data import parse_json, read_pairs, read_text
from dates import WITH_WEEKDAY, date_pairs, tagged_dates
from folders import checkpoint_to_resume, output_folder, publish_folder
from program import ProgramError, at_least, run, share
from training import add_training_flags, training_arguments

from hf_tformer.atomic_folders import save_whole
from hf_tformer.opening import open_pretrained

IGNORED = -100
SPECIAL = {"mask_token": "<mask>", "pad_token": "<pad>", "cls_token": "<cls>"}


def main():
    args = parse_arguments()
    with output_folder(args.output, args.resume):
        train(args)


def train(args):
    checkpoint = checkpoint_to_resume(args.output) if args.resume else None
    rows = read_rows(args)
    labels = sorted({label for _, found in rows for label in found})
    if len(labels) < 2:
        raise ProgramError(f"the data knows one class alone, {labels}: give rows of at least two")
    random.Random(args.seed).shuffle(rows)
    kept = max(1, round(args.validation * len(rows)))
    tokenizer = open_tokenizer(args, checkpoint, rows[kept:])
    model = build_model(args, checkpoint, tokenizer, labels)
    trainer = make_trainer(args, model, tokenizer, rows[kept:], rows[:kept])
    if trainer.is_world_process_zero():
        print(f"{len(labels)} classes, {len(rows) - kept} rows to learn from, {kept} to measure by")
    trainer.train(resume_from_checkpoint=checkpoint)
    accuracy = trainer.evaluate()["eval_accuracy"]
    if not trainer.is_world_process_zero():
        return  # of several processes, the first one saves
    print(f"\naccuracy on rows that it has not seen: {accuracy:.2%}")
    save_whole(args.output, trainer.model, tokenizer)
    print(f"saved: {args.output}\n{show(args, trainer.model, tokenizer, rows[0])}")
    if args.push_to_hub:
        print(publish_folder(args.output, args.push_to_hub).url)


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [MODEL] [options]  (--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", help="a folder or repository of an encoder")
    parser.add_argument("--revision", help="a branch, tag or commit of a repository")
    data = parser.add_argument_group("what to learn from (default: dates in sixteen languages)")
    data.add_argument("--data", help="a .tsv, .csv or .jsonl file")
    data.add_argument("--tags", action="store_true", help="a class for each word, not each text")
    data.add_argument("--columns", nargs=2, default=["text", "label"], metavar="NAME")
    data.add_argument("--number_of_dates", type=at_least(2), default=12000)
    data.add_argument("--max_length", type=at_least(2), default=128, help="tokens; longer is cut")
    data.add_argument("--validation", type=share, default=0.1, help="share of rows kept back")
    add_training_flags(parser, "classifier", epochs=3, learning_rate=1e-3)
    return parser.parse_args()


def read_rows(args):
    """(words, labels): a text is one word with one label."""
    if args.tags:
        if args.data:
            return read_tagged(args.data)
        return [(date.words, date.tags) for date in tagged_dates(args.number_of_dates, args.seed)]
    if args.data:
        return [([text], [label]) for text, label in read_pairs(args.data, args.columns)]
    dates = date_pairs(args.number_of_dates, args.seed, WITH_WEEKDAY)["train"]
    return [([date.source], [date.language]) for date in dates]


def read_tagged(path):
    """Words with a blank between them, and their tags; a blank is no word and has no tag."""
    rows = []
    for number, line in enumerate(filter(None, read_text(path).splitlines()), 1):
        row = parse_json(path, number, line)
        words, tags = (
            row.get(name) if isinstance(row, dict) else None for name in ("words", "tags")
        )
        if not (is_texts(words) and is_texts(tags) and len(words) == len(tags)):
            raise ProgramError(
                f'line {number} of {path} is no {{"words": [...], "tags": [...]}} of equal length'
            )
        rows.append(([words[0], *(f" {word}" for word in words[1:])], tags))
    return rows


def is_texts(value):
    return isinstance(value, list) and value and all(isinstance(item, str) for item in value)


def open_tokenizer(args, checkpoint, rows):
    from transformers import AutoTokenizer

    if source := checkpoint or args.model:
        revision = None if checkpoint else args.revision
        tokenizer = open_pretrained(AutoTokenizer, source, revision=revision)
        if not tokenizer.is_fast or tokenizer.pad_token_id is None:
            raise ProgramError(f"the tokenizer of {source} has no padding token, or no offsets")
        return tokenizer
    return train_tokenizer(["".join(words) for words, _ in rows], 1000, SPECIAL)


def build_model(args, checkpoint, tokenizer, labels):
    from transformers import (
        AutoConfig,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        set_seed,
    )

    from hf_tformer import TformerEncoderConfig

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
    config = TformerEncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        sliding_window=16,
        classifier_pooling="mean",
        dropout=0.1,
        pad_token_id=tokenizer.pad_token_id,
        **numbers,
    )
    return auto.from_config(config)


def make_trainer(args, model, tokenizer, training, validation):
    from transformers import (
        DataCollatorForTokenClassification,
        DataCollatorWithPadding,
        Trainer,
    )

    numbers = model.config.label2id
    prepare = tag_tokens if args.tags else label_text
    encode = {"truncation": True, "max_length": args.max_length}
    splits = [
        [
            prepare(tokenizer, words, [numbers[label] for label in labels], encode)
            for words, labels in rows
        ]
        for rows in (training, validation)
    ]
    collator = DataCollatorForTokenClassification if args.tags else DataCollatorWithPadding
    arguments = training_arguments(args, train_sampling_strategy="group_by_length")
    try:
        return Trainer(
            model=model,
            args=arguments,
            train_dataset=splits[0],
            eval_dataset=splits[1],
            data_collator=collator(tokenizer),
            processing_class=tokenizer,
            compute_metrics=accuracy,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # no such reporter
        raise ProgramError(str(error)) from error


def label_text(tokenizer, words, labels, encode):
    row = tokenizer("".join(words), return_token_type_ids=False, **encode)
    return {**row, "labels": labels[0]}


def tag_tokens(tokenizer, words, labels, encode):
    """A token has the tag of the word that its last letter belongs to."""
    text, ends = "".join(words), list(accumulate(map(len, words)))
    row = tokenizer(text, return_offsets_mapping=True, return_token_type_ids=False, **encode)
    tags = []
    for start, end in row.pop("offset_mapping"):
        word = next((index for index, last in enumerate(ends) if end <= last), None)
        tags.append(IGNORED if start == end or word is None else labels[word])
    return {**row, "labels": tags}


def accuracy(prediction):
    found, labels = prediction.predictions.argmax(-1), prediction.label_ids
    counted = labels != IGNORED
    return {"accuracy": float((found == labels)[counted].mean())}


def show(args, model, tokenizer, row):
    """What transformers' pipeline says of one text, as whoever opens the folder will ask."""
    from transformers import pipeline

    text = "".join(row[0])
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
