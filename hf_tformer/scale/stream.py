"""Rows of a data set that is read while it arrives, tokenised and packed on the way.

For runs that see each document once, or too few of them to prepare: `TokenRows` has any row at
once, an order of its own and the same rows for any number of processes, and a stream has not. Its
order is that of its documents. `documents` is usually an IterableDataset of `datasets`, shuffled
there and parted there, `split_dataset_by_node(documents, rank, world_size)`: each process reads its
own part, so another number of processes sees other rows at each step.

What `state_dict()` says after a row goes on behind that row, in a stream with as many parts. A
buffer that `datasets` shuffles by is not in it: it is filled anew, and what it held is skipped.
Workers of a DataLoader read parts of their own, too; their states are kept by torchdata's
StatefulDataLoader, not by torch's.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import IterableDataset

from .tokens import TokensError, pack

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class StreamedRows(IterableDataset):
    """Rows as `TokenRows` has them, of documents that are dicts with a text in `column`."""

    def __init__(
        self,
        documents: Iterable[dict],
        tokenizer: "PreTrainedTokenizerBase",
        length: int,
        column: str = "text",
    ):
        if tokenizer.eos_token_id is None:
            raise TokensError("the tokenizer has no end token, which parts the documents")
        if length < 2:
            raise TokensError(f"length is {length}: give at least 2, one token to learn from")
        self.documents, self.tokenizer = documents, tokenizer
        self.length, self.column = length, column
        self.ids: list[int] = []  # of documents that were read
        self.used = 0  # of these, in rows that were handed out
        self.goes_on = False

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if not self.goes_on:
            self.ids, self.used = [], 0
        self.goes_on = False
        yield from self.rows()
        for document in self.documents:
            self.ids += self.tokenise(document)
            yield from self.rows()

    def rows(self) -> Iterator[dict[str, torch.Tensor]]:
        while len(self.ids) - self.used >= self.length:
            row = self.ids[self.used : self.used + self.length]
            self.used += self.length
            yield pack(np.array(row), self.tokenizer.eos_token_id)
        self.ids, self.used = self.ids[self.used :], 0

    def tokenise(self, document: dict) -> list[int]:
        text = document.get(self.column)
        if not isinstance(text, str):
            raise TokensError(
                f"a document has no text in {self.column}: choose a column among "
                f"{', '.join(document)}"
            )
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [*ids, self.tokenizer.eos_token_id] if ids else []

    def state_dict(self) -> dict[str, object]:
        return {"documents": self.documents.state_dict(), "ids": self.ids[self.used :]}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """The next pass goes on; before the one after it, `datasets` wants a new set_epoch."""
        self.documents.load_state_dict(state["documents"])
        self.ids, self.used, self.goes_on = list(state["ids"]), 0, True
