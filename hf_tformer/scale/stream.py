"""Tokenise and pack the rows of a data set while it is streamed.

A stream is for runs that read each document once, or too few of them to prepare. Unlike
`TokenRows` it has no random access, its order is that of its documents, and its rows depend on the
number of processes. `documents` is usually an IterableDataset of `datasets`, shuffled and divided
there with `split_dataset_by_node(documents, rank, world_size)`.

A stream that loads the `state_dict()` of another continues after its last row, if it is divided
into as many parts. The shuffle buffer of `datasets` is not part of the state: it is filled anew,
and its former documents are skipped. The workers of a DataLoader read parts of their own, too;
torchdata's StatefulDataLoader keeps their states, torch's does not.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerBase

from .tokens import Row, TokensError, pack

if TYPE_CHECKING:
    import datasets


class StreamedRows(IterableDataset[Row]):
    """Packed rows as in `TokenRows`, of documents that are dicts with a text in `column`."""

    def __init__(
        self,
        documents: "datasets.IterableDataset",
        tokenizer: PreTrainedTokenizerBase,
        length: int,
        column: str = "text",
    ):
        if tokenizer.eos_token_id is None:
            raise TokensError("the tokenizer has no end token, which separates documents")
        if length < 2:
            raise TokensError(f"length is {length}: give at least 2, one token to learn from")
        self.documents, self.tokenizer = documents, tokenizer
        self.length, self.column = length, column
        self.ids: list[int] = []  # of documents that were read
        self.used = 0  # how many of them were returned in rows
        self.resumes = False

    def __iter__(self) -> Iterator[Row]:
        if not self.resumes:
            self.ids, self.used = [], 0
        self.resumes = False
        yield from self.rows()
        for document in self.documents:
            self.ids += self.tokenise(document)
            yield from self.rows()

    def rows(self) -> Iterator[Row]:
        while len(self.ids) - self.used >= self.length:
            row = self.ids[self.used : self.used + self.length]
            self.used += self.length
            yield pack(np.array(row), self.tokenizer.eos_token_id)
        self.ids, self.used = self.ids[self.used :], 0

    def tokenise(self, document: dict[str, object]) -> list[int]:
        text = document.get(self.column)
        if not isinstance(text, str):
            raise TokensError(
                f"a document has no text in {self.column}: choose a column among "
                f"{', '.join(document)}"
            )
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [*ids, self.tokenizer.eos_token_id] if ids else []

    def state_dict(self) -> dict[str, Any]:
        return {"documents": self.documents.state_dict(), "ids": self.ids[self.used :]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue there in the next pass; `datasets` wants a set_epoch before the one after it."""
        self.documents.load_state_dict(state["documents"])
        self.ids, self.used, self.resumes = list(state["ids"]), 0, True
