"""The data that the programs of this folder train on: texts and pairs, from files or the Hub."""

import csv
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from program import ProgramError

from hf_tformer.opening import first_line


def read_text(path: str | Path) -> str:
    with readable(path):
        text = Path(path).read_text(encoding="utf-8")
    if not text.strip():
        raise ProgramError(f"{path} is empty: give a file with text")
    return text


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """End the program with one sentence where a file cannot be read as text."""
    try:
        yield
    except FileNotFoundError as error:
        raise ProgramError(f"there is no file {path}: check the path") from error
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path} is not UTF-8 text: convert it first") from error
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}") from error


def iterate_json_lines(path: str | Path, column: str) -> Iterator[str]:
    """Yield a column line by line; the file may be larger than memory."""
    with readable(path), Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                row = parse_json(path, number, line)
                yield pick_columns(path, [row], [column])[0][0]


def read_pairs(path: str | Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Read (source, target) of each line: two columns of a .tsv or .csv, or fields of a .jsonl.

    The first line of a table is its heading if it holds the names of the columns.
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


def parse_json(path: str | Path, number: int, line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ProgramError(f"line {number} of {path} is not JSON: {error}") from error


def pick_columns(
    source: str | Path, rows: Collection[object], columns: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the named columns of rows that are dicts, as tuples of text."""
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


def read_dataset(name: str, config: str | None, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Read tuples of text from the training split of a data set on the Hub."""
    return pick_columns(name, open_dataset(name, config, split="train"), columns)


def iterate_dataset(
    name: str, config: str | None, column: str, *, streaming: bool = False
) -> Iterator[str]:
    """Yield a column row by row; streamed, the rows are not stored on this machine."""
    for row in open_dataset(name, config, split="train", streaming=streaming):
        yield pick_columns(name, [row], [column])[0][0]


def open_dataset(name: str, config: str | None, **options: object) -> Any:
    try:
        from datasets import load_dataset
    except ModuleNotFoundError as error:
        reason = "data sets need datasets: run `pip install 'hf-tformer[train]'`"
        raise ProgramError(reason) from error

    try:
        return load_dataset(name, config, **options)
    except Exception as error:  # each loader has its own errors; none of them is ours
        raise ProgramError(f"the data set {name} cannot be loaded: {first_line(error)}") from error
