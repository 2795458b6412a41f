"""Vectors of sentences by released models, beside sentence-transformers and ONNX Runtime.

sentence-transformers sorts sentences by length, so that batches have little padding. A loop that
takes them as they come has more. With `--quick`, a toy stands for the models.
"""

import random
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from conversion import open_exported

from .encoders import by_sentence_transformers, pair_of, save_tokenizer
from .measure import OURS, Contestants, Run, Settings, Workload, Workloads
from .runtimes import EXACT, exported, kept_files
from .weights import MINILM, MPNET, sentence_model, toy

BATCH = 32  # as in sentence-transformers
ONNX = "ONNX Runtime"
WORDS = """the a of and to in is was on with for from at by it we they she has not old new small
large garden river teacher window mountain letter evening music engine question winter station
carefully walks reads builds remembers finds sells yesterday often never because although"""


def vectors(settings: Settings) -> Workloads:
    """Encode sentences of which most are short, sorted by length and as they come."""
    with kept_files() as folder:
        for name in (MINILM, MPNET):
            model = Sentences(folder, name, settings)
            for what, ways in (("sorted", model.sorted()), ("as they come", model.as_they_come())):
                label = f"{name}, {len(model.texts)} sentences, {what}"
                yield Workload(label, ways, dict.fromkeys(list(ways)[1:], 1.0))


class Sentences:
    """A sentence model as ours, as theirs and exported, and the runs that encode with each."""

    def __init__(self, folder: Path, name: str, settings: Settings):
        self.folder, self.name, self.settings = folder, name, settings
        self.texts = drawn(settings.pick(500, 40), settings)

    @cached_property
    def place(self) -> Path:
        """Made when the first contestant asks, as the weights may not be at hand."""
        if self.settings.quick:
            pair = pair_of("modernbert", self.settings, 48, 2)
            return toy(pair, save_tokenizer, self.folder)
        return sentence_model(self.name, self.folder)

    def sorted(self) -> Contestants:
        return {
            OURS: partial(self.by_library, "ours"),
            "sentence-transformers": partial(self.by_library, "theirs"),
            ONNX: lambda: self.looped(self.exported(), sorted(self.texts, key=len)),
        }

    def as_they_come(self) -> Contestants:
        return {
            OURS: lambda: self.looped(self.of_torch("ours"), self.texts),
            "transformers": lambda: self.looped(self.of_torch("theirs"), self.texts),
            ONNX: lambda: self.looped(self.exported(), self.texts),
        }

    def by_library(self, side: str) -> Run:
        return by_sentence_transformers(self.place / side, self.texts)

    def of_torch(self, side: str) -> Any:
        return AutoModel.from_pretrained(self.place / side).eval()

    def exported(self) -> Any:
        return open_exported(exported(self.place / "ours", self.place / "onnx", "onnx", EXACT))

    def looped(self, model: Any, texts: list[str]) -> Run:
        """Return a run that makes batches of the texts in this order."""
        tokenizer = AutoTokenizer.from_pretrained(self.place / "ours")

        @torch.no_grad()
        def call() -> dict[str, torch.Tensor]:
            found = {}
            for start in range(0, len(texts), BATCH):
                batch = texts[start : start + BATCH]
                inputs = tokenizer(batch, padding=True, return_tensors="pt")
                states = model(**inputs).last_hidden_state
                mask = inputs["attention_mask"][..., None]
                means = (states * mask).sum(1) / mask.sum(1)
                found.update(zip(batch, means, strict=True))
            return found

        return Run(call, lambda found: {"vectors": torch.stack([found[x] for x in self.texts])})


def drawn(count: int, settings: Settings) -> list[str]:
    """Draw different sentences: half have fewer than 15 words, one in twenty more than 40."""
    chosen = random.Random(0)
    words = settings.pick(WORDS.split(), [f"w{i}" for i in range(3, 900)])
    lengths = [min(3 + round(chosen.lognormvariate(2.5, 0.7)), 120) for _ in range(count)]
    return [" ".join(chosen.choices(words, k=length)) for length in lengths]
