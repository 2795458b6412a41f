"""Write token shards: all documents are tokenised in one pass, in constant memory."""

import heapq
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..atomic_folders import unfinished_folder
from .tokens import (
    ABOUT,
    FORMAT,
    VALIDATION,
    About,
    TokensError,
    digest_of,
    file_name,
    little,
    refuse_beyond,
)

PARTIAL = re.compile(r"\..+-[0-9a-f]{8}\.partial")
# Documents are tokenised together, in threads of the tokenizer; these limits bound the memory.
BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 4_000_000


def write_tokens(
    documents: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    shard_tokens: int = 100_000_000,
    validation: float = 0,
    seed: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, About]:
    """Tokenise all documents into a new folder, which appears complete or not at all.

    `validation` is a share of the documents below 1, or their number; which ones follows from
    `seed` alone. Empty documents are omitted. After each batch, `report(documents, tokens)` is
    called with the counts since the last call. The result describes the files of "train" and
    "validation".
    """
    folder = Path(folder).absolute()
    refuse_settings(tokenizer, shard_tokens, validation)
    refuse_place(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with unfinished_folder(folder.parent, f".{folder.name}-", ".partial", PARTIAL) as partial:
        ids = tokenise(documents, tokenizer, report or (lambda documents, tokens: None))
        written = {"train": Shards(partial, tokenizer, shard_tokens)}
        if validation:
            (partial / VALIDATION).mkdir()
            written["validation"] = Shards(partial / VALIDATION, tokenizer, shard_tokens)
        for split, document in set_aside(ids, validation, seed):
            written[split].add(document)
        refuse_empty(written, validation)
        tokenizer.save_pretrained(partial)
        found = {split: shards.close() for split, shards in written.items()}
        partial.replace(folder)
    return found


def refuse_settings(
    tokenizer: PreTrainedTokenizerBase, shard_tokens: int, validation: float
) -> None:
    if tokenizer.eos_token_id is None:
        raise TokensError(
            "the tokenizer has no end token, which separates documents: choose another, or set its "
            "eos_token"
        )
    if shard_tokens < 1:
        raise TokensError(f"shard_tokens is {shard_tokens}: give at least 1")
    if validation < 0 or (validation > 1 and validation != int(validation)):
        raise TokensError(
            f"validation is {validation}: give a share of the documents below 1, or their number"
        )


def refuse_place(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise TokensError(f"{folder} exists and is not empty: choose another folder")


def tokenise(
    documents: Iterable[str], tokenizer: PreTrainedTokenizerBase, report: Callable[[int, int], None]
) -> Iterator[np.ndarray]:
    """Yield the ids of each document that has any, followed by the end token."""
    options = {"add_special_tokens": False, "return_attention_mask": False}
    for batch in batches(documents):
        rows = tokenizer(batch, **options, return_token_type_ids=False, verbose=False)["input_ids"]
        report(len(batch), sum(map(len, rows)))
        for row in rows:
            if row:
                yield np.array([*row, tokenizer.eos_token_id])


def batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch, characters = [], 0
    for number, document in enumerate(documents):
        if not isinstance(document, str):
            raise TokensError(
                f"document {number} is a {type(document).__name__}, not text: choose another column"
            )
        batch.append(document)
        characters += len(document)
        if len(batch) == BATCH_DOCUMENTS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def set_aside(
    documents: Iterable[np.ndarray], validation: float, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each document with its split.

    For a number of documents, those with the smallest random numbers are held in memory until the
    end.
    """
    chance = random.Random(seed)
    held: list[tuple[float, int, np.ndarray]] = []
    for number, document in enumerate(documents):
        drawn = chance.random()
        if validation < 1:
            yield ("validation" if drawn < validation else "train"), document
            continue
        heapq.heappush(held, (-drawn, number, document))
        if len(held) > validation:
            yield "train", heapq.heappop(held)[2]
    for _, _, document in sorted(held, key=lambda entry: entry[1]):
        yield "validation", document


def refuse_empty(written: "dict[str, Shards]", validation: float) -> None:
    counts = {split: shards.documents for split, shards in written.items()}
    if not any(counts.values()):
        raise TokensError("there is no text: give at least one document that is not empty")
    if not all(counts.values()):
        raise TokensError(
            f"validation is {validation} of {sum(counts.values())} documents, which leaves none "
            f"for {min(counts, key=counts.__getitem__)}: give more documents, another number, or 0"
        )


class Shards:
    """Writes documents one after the other into files of equal length."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerBase, shard_tokens: int):
        self.folder, self.tokenizer, self.shard_tokens = folder, tokenizer, shard_tokens
        self.vocabulary = 1 + max(tokenizer.get_vocab().values())
        self.dtype = "uint16" if self.vocabulary <= 2**16 else "uint32"
        self.tokens = self.documents = 0
        self.file = self.open(0)

    def add(self, ids: np.ndarray) -> None:
        refuse_beyond(ids, self.vocabulary, "the tokenizer", "take another tokenizer")
        self.documents += 1
        while len(ids):
            number, filled = divmod(self.tokens, self.shard_tokens)
            if not filled and number:
                self.file.close()
                self.file = self.open(number)
            part = ids[: self.shard_tokens - filled]
            self.file.write(part.astype(little(self.dtype)).tobytes())
            self.tokens += len(part)
            ids = ids[len(part) :]

    def open(self, number: int) -> BinaryIO:
        return (self.folder / file_name(number)).open("wb")

    def close(self) -> About:
        self.file.close()
        about = About(
            format=FORMAT,
            dtype=self.dtype,
            end_token=self.tokenizer.eos_token_id,
            vocabulary=self.vocabulary,
            tokenizer=digest_of(self.tokenizer),
            shard_tokens=self.shard_tokens,
            tokens=self.tokens,
            documents=self.documents,
        )
        text = json.dumps(asdict(about), indent=2) + "\n"
        (self.folder / ABOUT).write_text(text, encoding="utf-8")
        return about
