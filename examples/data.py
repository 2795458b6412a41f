"""The data that programs train on: pairs and texts, from files or the Hub; texts as token ids."""

import csv
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from program import ProgramError, Tokenizer, at_least, share

from hf_tformer.opening import first_line, open_pretrained

if TYPE_CHECKING:
    import tokenizers

END = "<|endoftext|>"
# What stands before a sequence, after it, and in the place of a hidden token.
ENCODER_TOKENS = {"mask_token": "<mask>", "pad_token": "<pad>", "cls_token": "<cls>"}
SMALLEST_VOCABULARY = 260  # every byte, the end, and the other special tokens


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


def parse_json(path: str | Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ProgramError(f"line {number} of {path} is not JSON: {error}") from error


def pick_columns(
    source: str | Path, rows: Collection[Any], columns: Sequence[str]
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


def add_corpus_flags(parser: ArgumentParser) -> None:
    add = add_document_flags(parser).add_argument
    add("--block_size", type=at_least(2), default=128, help="tokens per block")
    add("--validation", type=share, default=0.05, help="share of blocks kept for evaluation")


def add_document_flags(parser: ArgumentParser) -> Any:
    """Add the options that name a text, and return their group."""
    data = parser.add_argument_group("the text (default: the manual that comes with Python)")
    source = data.add_mutually_exclusive_group()
    source.add_argument(
        "--text", nargs="+", help="UTF-8 files: each one document, or each line of a .jsonl"
    )
    source.add_argument("--dataset", help="data set on the Hub, whose training split is read")
    data.add_argument("--dataset_config", help="name of its configuration")
    data.add_argument("--column", default="text", help="name of the column that holds the text")
    data.add_argument(
        "--tokenizer", help="folder or repository of the tokenizer (default: a new one)"
    )
    size = at_least(SMALLEST_VOCABULARY)
    data.add_argument("--vocab_size", type=size, default=4096, help="tokens of a new tokenizer")
    return data


def iterate_documents(args: Namespace, *, streaming: bool = False) -> Iterator[str]:
    """Yield one document after the other; all of them need not fit into memory."""
    if args.text:
        for path in args.text:
            if path.endswith(".jsonl"):
                yield from iterate_json_lines(path, args.column)
            else:
                yield read_text(path)
    elif args.dataset:  # streamed, it is not stored on this machine
        options = {"split": "train", "streaming": streaming}
        for row in open_dataset(args.dataset, args.dataset_config, **options):
            yield pick_columns(args.dataset, [row], [args.column])[0][0]
    else:
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            raise ProgramError("this Python came without its manual: give --text FILE") from error
        yield from topics.values()


def make_tokenizer(
    args: Namespace, documents: Collection[str], checkpoint: str | None, **roles: str
) -> Tokenizer:
    from transformers import AutoTokenizer

    source = checkpoint or args.tokenizer
    if not source:
        return train_tokenizer(documents, args.vocab_size, roles)
    tokenizer = open_pretrained(AutoTokenizer, source)
    if tokenizer.eos_token_id is None:
        raise ProgramError(f"{source} has no end token: choose another tokenizer")
    return tokenizer


def train_tokenizer(
    documents: Collection[str], vocab_size: int, special_tokens: dict[str, str]
) -> Tokenizer:
    """Train a byte-level BPE; `special_tokens` by their role (mask_token=...) follow the end."""
    from transformers import PreTrainedTokenizerFast

    bpe = byte_level_bpe(documents, vocab_size, [END, *special_tokens.values()])
    roles = {"bos_token": END, "eos_token": END, "pad_token": END, **special_tokens}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **roles)


def byte_level_bpe(
    texts: Iterable[str],
    vocab_size: int,
    special_tokens: list[str],
    *,
    single_digits: bool = False,
    show_progress: bool = True,
) -> "tokenizers.Tokenizer":
    """Train a BPE over bytes: it encodes any text, and decodes it as it was.

    With `single_digits` numbers are spelled, and text is normalized to composed characters first.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if single_digits:
        bpe.normalizer = normalizers.NFC()
        digits = pre_tokenizers.Digits(individual_digits=True)
        bpe.pre_tokenizer = pre_tokenizers.Sequence([digits, bpe.pre_tokenizer])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=show_progress,
    )
    bpe.train_from_iterator(texts, trainer)
    return bpe


def make_blocks(
    args: Namespace, documents: Collection[str], tokenizer: Tokenizer
) -> tuple[list[list[int]], list[list[int]]]:
    """Join all documents, each closed by the end token, and cut their ids into blocks.

    Returns those to train on, and those to evaluate on.
    """
    from tqdm import tqdm

    ids = []
    for document in tqdm(documents, desc="Tokenizing", unit="document"):
        ids += tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        ids.append(tokenizer.eos_token_id)
    size = args.block_size
    blocks = cut(ids, size)
    kept = max(1, round(args.validation * len(blocks)))
    if len(blocks) <= kept:
        raise ProgramError(
            f"the text has {len(ids)} tokens, and --block_size {size} needs two blocks, one to "
            "train on and one to evaluate on: give more text or smaller blocks"
        )
    return blocks[:-kept], blocks[-kept:]


def cut(ids: list[int], size: int) -> list[list[int]]:
    """Cut token ids into blocks of equal length, without the rest at the end."""
    return [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
