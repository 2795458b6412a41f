"""Read token shards: files with the ids of documents that were tokenised once, read in rows.

    folder/tokens.json         the description of the files
    folder/tokens-00000.bin    ids in sequence, little-endian; each document ends with the end token
    folder/tokens-00001.bin    the next ids; documents continue across files
    folder/tokenizer.json ...  the tokenizer's own files
    folder/validation/         the validation documents: tokens.json and files of their own

A row is a training example of `length` tokens in sequence, so it may begin and end within a
document. Its place follows from its number. Rows are read from the disk on demand, so memory does
not grow with the files. A truncated file raises an error; a memory-mapped one would end the
process.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import overload

import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

Row = dict[str, torch.Tensor]  # input_ids, position_ids and labels, each [length]

FORMAT = 1
ABOUT = "tokens.json"
VALIDATION = "validation"
IGNORED = -100  # the label of a token that does not count in the loss


class TokensError(ValueError):
    """The fault of token shards and what to do, in one sentence."""


@dataclass(frozen=True)
class About:
    """The content of tokens.json."""

    format: int
    dtype: str  # of an id: uint16 or uint32
    end_token: int
    vocabulary: int  # every id is smaller
    tokenizer: str  # its digest
    shard_tokens: int  # in each file but the last
    tokens: int
    documents: int

    def files(self) -> list[tuple[str, int]]:
        """Return the name and the number of bytes of each file."""
        full, rest = divmod(self.tokens, self.shard_tokens)
        counts = [self.shard_tokens] * full + [rest] * bool(rest)
        size = np.dtype(self.dtype).itemsize
        return [(file_name(number), count * size) for number, count in enumerate(counts)]


def file_name(number: int) -> str:
    return f"tokens-{number:05}.bin"


def digest_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash the vocabulary of a tokenizer, by which its ids are compared with those of others."""
    vocabulary = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def little(dtype: str) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")


def refuse_beyond(ids: np.ndarray, vocabulary: int, whose: str, remedy: str) -> None:
    if (largest := int(ids.max())) >= vocabulary:
        raise TokensError(
            f"{whose} gives the id {largest}, but the vocabulary has {vocabulary} tokens: {remedy}"
        )


# Reading


class TokenRows(Sequence[Row]):
    """The rows of a folder of token shards, or of its `validation` folder.

    `rows[i]` packs tokens i · length to (i + 1) · length; a last row that would be shorter is
    omitted. The workers of a DataLoader can share the object.
    """

    def __init__(self, folder: str | Path, length: int):
        self.folder, self.length = Path(folder), length
        self.about = read_about(self.folder)
        refuse_files(self.folder, self.about)
        if length < 2:
            raise TokensError(f"length is {length}: give at least 2, one token to learn from")
        if length > self.about.tokens:
            raise TokensError(
                f"length is {length}, but {self.folder} holds {self.about.tokens} tokens: give a "
                "smaller one"
            )

    def __len__(self) -> int:
        return self.about.tokens // self.length

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        ids = self.read(range(len(self))[index] * self.length)
        refuse_beyond(ids, self.about.vocabulary, str(self.folder), "prepare the tokens anew")
        return pack(ids, self.about.end_token)

    def read(self, start: int) -> np.ndarray:
        """Read `length` ids, from as many files as they lie in."""
        parts, end = [], start + self.length
        dtype = little(self.about.dtype)
        while start < end:
            number, skipped = divmod(start, self.about.shard_tokens)
            count = min(end - start, self.about.shard_tokens - skipped)
            path = self.folder / file_name(number)
            part = np.fromfile(path, dtype, count, offset=skipped * dtype.itemsize)
            if len(part) < count:
                raise TokensError(f"{path} was cut short while it was read: prepare it anew")
            parts.append(part)
            start += count
        return np.concatenate(parts).astype(np.int64)

    def refuse_other(
        self,
        tokenizer: PreTrainedTokenizerBase | None = None,
        config: PreTrainedConfig | None = None,
    ) -> None:
        """Refuse tokens of another tokenizer, and ids for which a model has no embedding."""
        if tokenizer is not None and digest_of(tokenizer) != self.about.tokenizer:
            raise TokensError(
                f"the tokens in {self.folder} are not those of the tokenizer {name_of(tokenizer)}: "
                "prepare them with it, or use the tokenizer in their folder"
            )
        if config is not None and config.vocab_size < self.about.vocabulary:
            raise TokensError(
                f"the model's vocab_size is {config.vocab_size}, but the tokens in {self.folder} "
                f"are of a vocabulary of {self.about.vocabulary}: use a model of that size"
            )


def name_of(tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.name_or_path or "that was given"


def read_about(folder: Path) -> About:
    path = folder / ABOUT
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TokensError(
            f"{folder} holds no tokens, for there is no {ABOUT}: give a folder that "
            "prepare_tokens.py wrote"
        ) from error
    except (OSError, ValueError) as error:
        raise TokensError(f"{path} cannot be read: prepare the tokens anew") from error
    wanted = {field.name: field.type for field in fields(About)}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise TokensError(
            f"the format of {path} is {found}, and this version reads {FORMAT}: prepare the tokens "
            "anew"
        )
    for name, kind in wanted.items():
        if type(content.get(name)) is not kind:
            raise TokensError(f"{name} in {path} is {content.get(name)!r}: prepare the tokens anew")
    about = About(**{name: content[name] for name in wanted})
    if about.dtype not in ("uint16", "uint32") or about.shard_tokens < 1:
        raise TokensError(f"{path} does not say how the files are written: prepare them anew")
    return about


def refuse_files(folder: Path, about: About) -> None:
    for name, size in about.files():
        path = folder / name
        if not path.is_file():
            raise TokensError(f"{path} is missing: copy the folder again, or prepare it anew")
        if (found := path.stat().st_size) != size:
            raise TokensError(
                f"{path} has {found} bytes, and {ABOUT} says {size}: copy the folder again, or "
                "prepare it anew"
            )


# Rows


def pack(ids: np.ndarray, end_token: int) -> Row:
    """Return ids, positions and labels, [length], of documents that do not attend to each other.

    Positions begin at 0 in each document and at the start of the row, even within a document. The
    first token of each document has no label, because no token before it may predict it.
    """
    places = np.arange(len(ids))
    begins = np.concatenate(([True], ids[:-1] == end_token))
    positions = places - np.maximum.accumulate(np.where(begins, places, 0))
    return {
        "input_ids": torch.from_numpy(ids),
        "position_ids": torch.from_numpy(positions),
        "labels": torch.from_numpy(np.where(begins, IGNORED, ids)),
    }


def collate_rows(rows: Sequence[Row]) -> dict[str, torch.Tensor | int]:
    """Collate packed rows to a batch whose documents are separate on every attention backend.

    Flash attention reads `position_ids` only in batches of one row; in larger ones the documents of
    a row would attend to each other without an error. The batch therefore has the boundaries of
    all documents, in all rows laid end to end, which other backends ignore.
    """
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    begins = (batch["position_ids"].flatten() == 0).nonzero().flatten()
    bounds = torch.cat((begins, torch.tensor([batch["input_ids"].numel()]))).to(torch.int32)
    longest = batch["input_ids"].shape[1]  # the same for every batch, so nothing is recompiled
    boundaries = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
    return {**batch, **boundaries, "max_length_q": longest, "max_length_k": longest}
