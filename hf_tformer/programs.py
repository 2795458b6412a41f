"""What the programs in examples/ have in common: opening, reading, refusing, saving.

What can be foreseen to go wrong ends a program with one sentence, before anything is written; what
is saved appears at once and whole.
"""

import argparse
import csv
import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

# What marks a folder as a model; moved into place after everything else.
MARKS = ("config.json", "adapter_config.json")
ONE_LINE = 400


class ProgramError(Exception):
    """Why a program ends, in one sentence that says what to do."""


def run(main):
    """Runs a program; a failure that it foresees is one sentence on stderr and exit status 1."""
    try:
        main()
    except ProgramError as error:
        print(f"{Path(sys.argv[0]).name}: {in_one_line(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"\n{Path(sys.argv[0]).name}: stopped", file=sys.stderr)
        sys.exit(130)


def in_one_line(error):
    return " ".join(str(error).split())[:ONE_LINE]


def first_line(error):
    """The first sentence of someone else's error; what follows is usually advice on other cases."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def at_least(smallest, kind=int):
    """The type of a flag whose value must not be smaller."""

    def convert(text):
        value = kind(text)
        if value < smallest:
            raise argparse.ArgumentTypeError(f"{text} is too small: give at least {smallest}")
        return value

    convert.__name__ = kind.__name__  # argparse shows it where the text is no number
    return convert


def share(text):
    """The type of a flag that is a part of the whole."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: give one between 0 and 1")
    return value


def positive(text):
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def open_pretrained(auto_class, source, **options):
    """`auto_class.from_pretrained`, for a folder or a repository, without running its code."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    refuse_missing_folder(source)
    try:
        return auto_class.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, StrictDataclassError, SafetensorError) as error:
        what = auto_class.__name__.removeprefix("Auto").lower()
        raise ProgramError(f"{source} cannot be opened as a {what}: {first_line(error)}") from error


def refuse_missing_folder(source):
    """A path that does not exist would be looked up on the Hub, and the answer would mislead."""
    is_path = source.startswith((".", "/", "~")) or source.count("/") > 1
    if is_path and not Path(source).expanduser().is_dir():
        raise ProgramError(f"there is no folder {source}: give one that save_pretrained wrote")


def open_model(source, revision=None, **options):
    """A decoder or an encoder-decoder with its head, and its tokenizer; adapters on top of it."""
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSeq2SeqLM,
        AutoTokenizer,
    )

    base, its_revision = find_base(source, revision)
    config = open_pretrained(AutoConfig, base, revision=its_revision)
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = open_pretrained(auto_class, source, revision=revision, **options)
    return model, open_pretrained(AutoTokenizer, source, revision=revision)


def find_base(source, revision):
    """The model whose configuration counts: for adapters the one that they were trained on."""
    from transformers.utils import find_adapter_config_file

    refuse_missing_folder(source)
    try:
        adapters = find_adapter_config_file(source, revision=revision)
        if adapters is None:
            return source, revision
        config = json.loads(Path(adapters).read_text(encoding="utf-8"))
        return config["base_model_name_or_path"], config.get("revision")
    except (OSError, ValueError, KeyError) as error:
        raise ProgramError(f"{source} cannot be opened as a model: {first_line(error)}") from error


def read_text(path):
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ProgramError(f"there is no file {path}: check the path") from error
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path} is not UTF-8 text: convert it first") from error
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}") from error
    if not text.strip():
        raise ProgramError(f"{path} is empty: give a file with text")
    return text


def read_pairs(path, columns):
    """(source, target) of each line: two columns of a .tsv or .csv, or fields of a .jsonl.

    A table has a heading with the columns' names if its first line names them.
    """
    lines = read_text(path).splitlines()
    if Path(path).suffix == ".jsonl":
        rows = [parse_json(path, number, line) for number, line in enumerate(lines, 1) if line]
        return pick_columns(path, rows, columns)
    delimiter = "," if Path(path).suffix == ".csv" else "\t"
    quoting = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    rows = [row for row in csv.reader(lines, delimiter=delimiter, quoting=quoting) if row]
    if set(columns) <= set(rows[0]):
        rows = [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]
        return pick_columns(path, rows, columns)
    wrong = next((number for number, row in enumerate(rows, 1) if len(row) != 2), None)
    if wrong:
        raise ProgramError(
            f"row {wrong} of {path} has {len(rows[wrong - 1])} columns: give a source and a target,"
            " or a heading and --columns"
        )
    return [tuple(row) for row in rows]


def parse_json(path, number, line):
    try:
        return json.loads(line)
    except ValueError as error:
        raise ProgramError(f"line {number} of {path} is not JSON: {error}") from error


def pick_columns(source, rows, columns):
    """The named columns of rows that are dicts, as tuples of text."""
    if not rows:
        raise ProgramError(f"{source} holds no rows: give some")
    for row in rows:
        missing = [name for name in columns if not isinstance(row, dict) or name not in row]
        if missing:
            there = ", ".join(row) if isinstance(row, dict) else "none"
            raise ProgramError(
                f"{source} has no column {missing[0]}: choose among its columns ({there})"
            )
        wrong = [name for name in columns if not isinstance(row[name], str)]
        if wrong:
            raise ProgramError(f"column {wrong[0]} of {source} is not text: choose another")
    return [tuple(row[name] for name in columns) for row in rows]


def read_dataset(name, config, columns):
    """Tuples of text from the training split of a data set on the Hub."""
    from datasets import load_dataset

    try:
        rows = load_dataset(name, config, split="train")
    except Exception as error:  # each loader has its own errors; none of them is ours
        raise ProgramError(f"the data set {name} cannot be loaded: {first_line(error)}") from error
    return pick_columns(name, rows, columns)


@contextmanager
def output_folder(folder, resume=False):
    """Makes the folder, and removes it if the program fails before anything is written.

    Refuses one that holds something already, unless it is to be continued.
    """
    if not resume and any((folder / mark).exists() for mark in MARKS):
        raise ProgramError(f"{folder} holds a model already: choose another --output")
    if not resume and list(folder.glob("checkpoint-*")):
        raise ProgramError(
            f"{folder} holds an unfinished run: --resume continues it, or choose another --output"
        )
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ProgramError(
            f"{folder} cannot be written to ({error.strerror}): choose another --output"
        ) from error
    try:
        yield
    except BaseException:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()
        raise


def checkpoint_to_resume(folder):
    """The last complete checkpoint of a run that was interrupted."""
    from .training import last_complete_checkpoint

    checkpoint = last_complete_checkpoint(folder)
    if checkpoint is None:
        raise ProgramError(
            f"{folder} has no complete checkpoint to resume from: leave --resume away"
        )
    return str(checkpoint)


def save_whole(folder, *parts):
    """Saves beside and moves at the end: the folder shows a whole model or none."""
    folder = Path(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as saving:
        for part in parts:
            part.save_pretrained(saving)
        for path in sorted(Path(saving).iterdir(), key=lambda path: path.name in MARKS):
            path.replace(folder / path.name)


def publish_folder(folder, repo_id):
    """`hf_tformer.publish`, with its refusal as a program's."""
    from .publishing import PublishError, publish

    try:
        return publish(folder, repo_id)
    except PublishError as error:
        raise ProgramError(str(error)) from error
