"""The pairs that train_translation.py trains on: from files, a data set or dates; as token ids."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from data import open_dataset, read_text
from datasets import Dataset, Features, Sequence, Value
from datasets.utils import are_progress_bars_disabled
from dates import Pair, date_pairs
from program import ProgramError
from tqdm import tqdm

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SPLITS = ("train", "validation", "test")
VALIDATION_SHARE = 0.05  # of the pairs, where no others are given to evaluate on


def option(help: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class DataArguments:
    _argument_group_name = "the pairs (without a file or a data set: dates, made on the spot)"

    source_file: str | None = option("sentences to translate, UTF-8, one a line")
    target_file: str | None = option("their translations, line by line")
    validation_source_file: str | None = option("sentences to evaluate on (default: the last 5 %%)")
    validation_target_file: str | None = option("their translations")
    test_source_file: str | None = option("sentences to evaluate the finished model on")
    test_target_file: str | None = option("their translations")
    dataset_name: str | None = option("data set on the Hub, or its folder, instead of files")
    dataset_config_name: str | None = option("name of its configuration")
    source_column: str = option("its sentences; nested ones as in translation.de", "source")
    target_column: str = option("their translations", "target")
    number_of_dates: int = option("number of dates to train on", 40_000)
    vocab_size: int = option("tokens of the BPE that both sides share", 1000)
    max_length: int = option("longest pair that is trained on or generated, in tokens", 128)


def read_pairs(data: DataArguments) -> dict[str, Dataset]:
    """Return pairs to train on, to validate with, and, where there are any, to test with."""
    if data.dataset_name:
        splits = read_dataset(data)
    elif any(value for name, value in vars(data).items() if name.endswith("_file")):
        splits = read_files(data)
    else:
        splits = date_pairs(data.number_of_dates)
        return {split: as_dataset(splits[split]) for split in splits}
    if "validation" not in splits:
        kept = max(1, round(VALIDATION_SHARE * len(splits["train"])))
        first = len(splits["train"]) - kept
        splits["validation"] = splits["train"].select(range(first, first + kept))
        splits["train"] = splits["train"].select(range(first))
    if not len(splits["train"]):
        raise ProgramError("there is a single pair, and one is needed to evaluate on: give more")
    return splits


def as_dataset(pairs: Iterable[Pair]) -> Dataset:
    return Dataset.from_dict(
        {name: [getattr(pair, name) for pair in pairs] for name in Pair._fields}
    )


def read_files(data: DataArguments) -> dict[str, Dataset]:
    splits = {}
    for split, prefix in zip(SPLITS, ("", "validation_", "test_"), strict=True):
        names = f"{prefix}source_file", f"{prefix}target_file"
        source, target = (getattr(data, name) for name in names)
        if bool(source) != bool(target):
            given, missing = names if source else reversed(names)
            raise ProgramError(f"--{given} is given without --{missing}: give both")
        if source:
            splits[split] = read_parallel_files(source, target)
    if "train" not in splits:
        raise ProgramError("there is nothing to train on: give --source_file and --target_file")
    return splits


def read_parallel_files(*paths: str) -> Dataset:
    # Not splitlines(): it also cuts at characters that occur inside of sentences, U+2028 for one.
    sides = [read_text(path).removesuffix("\n").split("\n") for path in paths]
    named = [*zip(paths, sides, strict=True)]
    if len(sides[0]) != len(sides[1]):
        counts = ", ".join(f"{path} has {len(lines)} lines" for path, lines in named)
        raise ProgramError(f"{counts}: line n of one has to be the translation of line n")
    for path, lines in named:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise ProgramError(
                    f"line {number} of {path} is empty: remove it and the one it belongs to"
                )
    return as_dataset([Pair(*map(str.strip, pair)) for pair in zip(*sides, strict=True)])


def read_dataset(data: DataArguments) -> dict[str, Dataset]:
    name = data.dataset_name
    loaded = open_dataset(name, data.dataset_config_name).flatten()
    if "train" not in loaded:
        raise ProgramError(f"the data set {name} has no split train, only {', '.join(loaded)}")
    kept = [split for split in SPLITS if split in loaded]
    return {split: pick_columns(data, split, loaded[split]) for split in kept}


def pick_columns(data: DataArguments, split: str, rows: Dataset) -> Dataset:
    name, columns = data.dataset_name, [data.source_column, data.target_column]
    for column in columns:
        if column not in rows.column_names:
            raise ProgramError(
                f"the data set {name} has no column {column}: choose --source_column and "
                f"--target_column among {', '.join(rows.column_names)}"
            )
        texts = tqdm(rows[column], f"Reading {column}", disable=are_progress_bars_disabled())
        for number, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise ProgramError(
                    f"row {number} of {column} in the split {split} of {name} is {text!r}: it has "
                    "to be a sentence"
                )
    sides = dict(zip(columns, ("source", "target"), strict=True))
    return rows.select_columns(columns).rename_columns(sides)


def sentences_of(pairs: Dataset) -> Iterator[str]:
    for batch in pairs.iter(1000):
        for pair in zip(batch["source"], batch["target"], strict=True):
            yield from pair


def encode(pairs: Dataset, tokenizer: "PreTrainedTokenizerBase") -> Dataset:
    """Tokenize each pair. The ids of a data set are kept in a file, those of others in memory."""

    def tokenize(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        sources, targets = (tokenizer(batch[side])["input_ids"] for side in ("source", "target"))
        return {"input_ids": sources, "labels": targets}

    ids = Sequence(Value("int32"))
    return pairs.map(
        tokenize,
        batched=True,
        remove_columns=pairs.column_names,
        features=Features({"input_ids": ids, "labels": ids}),
        desc="Tokenizing",
    )


def drop_long(pairs: Dataset, max_length: int) -> Dataset:
    def is_short(sources: list[list[int]], targets: list[list[int]]) -> list[bool]:
        return [max(map(len, pair)) <= max_length for pair in zip(sources, targets, strict=True)]

    columns = ["input_ids", "labels"]
    kept = pairs.filter(is_short, batched=True, input_columns=columns, desc="Dropping long pairs")
    if not len(kept):
        raise ProgramError(f"every pair has more than --max_length {max_length} tokens: raise it")
    if len(kept) < len(pairs):
        print(f"{len(pairs) - len(kept)} pairs longer than {max_length} tokens are dropped")
    return kept
