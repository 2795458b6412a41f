"""Decoders whose folders hold another head than that of a language model, or a body alone.

The format of a language model gives the rules of the body. What a head is called, and what stands
before the names of the body beside it, is read off the class of transformers.
"""

import re
from dataclasses import dataclass, replace

import transformers
from torch import nn

from .aliases import Config, Fields, FilePath
from .errors import ConversionError
from .format import Format, carry
from .heads import holds_head, only_architecture, with_prefixes
from .models import Library
from .rules import Rule, as_tuple, linear

HEADS = {  # the end of the name of their class → the head in our class, which has this end, too
    "Model": "",
    "ForSequenceClassification": "score",
    "ForTokenClassification": "score",
    "ForQuestionAnswering": "qa_outputs",
}
CAUSAL = "ForCausalLM"
LABELS = ("id2label", "label2id", "problem_type")
LM_HEAD = "lm_head."
OUR_BODY = "model."


@dataclass(frozen=True)
class OfHead:
    """The parts of a format that differ for another head of the same body."""

    format: Format
    end: str

    def converted(self) -> Format:
        theirs, ours = prefix_of(self.format) + self.end, self.format.our_classes
        return replace(
            self.format,
            rules=self.rules,
            config_to_ours=self.to_ours,
            config_to_theirs=self.to_theirs,
            classes=(self.format.classes[0], theirs),
            our_classes=replace(ours, model_name=our_prefix(ours) + self.end),
        )

    def rules(self, theirs: Config) -> tuple[Rule, ...]:
        """Return the rules of the body by its names beside this head, and those of the head."""
        model = self.converted().theirs.build(theirs)
        body = f"{self.format.theirs.model_class.base_model_prefix}."
        head = HEADS[self.end]
        within = f"{model.base_model_prefix}." if head else ""
        moved = [
            with_prefixes(rule, (OUR_BODY, OUR_BODY if head else ""), (body, within))
            for rule in self.format.table(theirs)
            if not any(name.startswith(LM_HEAD) for name in as_tuple(rule.ours))
        ]
        return (*moved, *(linear(head, projection_of(model)) if head else ()))

    def to_ours(self, theirs: Config) -> Fields:
        return {**self.format.config_to_ours(theirs), **self.labels(theirs)}

    def to_theirs(self, ours: Config) -> Fields:
        assert self.format.config_to_theirs is not None
        return {**self.format.config_to_theirs(ours), **self.labels(ours)}

    def labels(self, config: Config) -> Fields:
        return carry(config, LABELS) if self.end.endswith("Classification") else {}


def projection_of(model: nn.Module) -> str:
    """Return the name of the linear layer behind a body: score, classifier or qa_outputs."""
    return next(name for name, part in model.named_children() if isinstance(part, nn.Linear))


def prefix_of(format: Format) -> str:
    """Return how the classes of a format begin: Llama, GPT2, Gemma3Text."""
    return format.classes[0].removesuffix("Config")


def read_head(format: Format, folder: FilePath) -> Format:
    """Return the format for the head that config.json names, if the file holds it."""
    name = str(only_architecture(folder) or format.classes[1])
    known = {
        prefix_of(format) + end: end
        for end in HEADS
        if hasattr(transformers, prefix_of(format) + end)
    }
    if name in known:
        chosen = OfHead(format, known[name]).converted()
        return chosen if known[name] == "Model" else or_body(chosen, format, folder, name)
    if name != format.classes[1] and re.search(r"For(?!CausalLM)", name):
        raise ConversionError(
            f"architectures is {[name]!r} in {folder}/config.json, a head that no rule explains: "
            f"choose a folder of {', '.join((format.classes[1], *known))}"
        )
    return or_body(format, format, folder, name)


def or_body(chosen: Format, format: Format, folder: FilePath, name: str) -> Format:
    """Return the format of a body without a head where the file holds no tensor of the head."""
    if holds_head(chosen, folder):
        return chosen
    return replace(OfHead(format, "Model").converted(), absent_head=name)


def written_head(format: Format, folder: FilePath) -> Format:
    """Return the export format for the head that a folder of ours names."""
    ours = format.our_classes
    end = end_of_ours(folder, ours)
    if end == CAUSAL:
        return format
    if not hasattr(transformers, prefix_of(format) + end):
        wanted = prefix_of(format) + end
        raise ConversionError(
            f"{folder} holds {our_prefix(ours)}{end}, and transformers has no {wanted}: choose "
            "another format"
        )
    return OfHead(format, end).converted()


def our_decoder(folder: FilePath, library: Library) -> Library:
    """Return the class that a decoder folder of ours names, a language model by default."""
    end = end_of_ours(folder, library)
    return library if end == CAUSAL else replace(library, model_name=our_prefix(library) + end)


def end_of_ours(folder: FilePath, library: Library) -> str:
    end = str(only_architecture(folder)).removeprefix(our_prefix(library))
    return end if end in HEADS else CAUSAL


def our_prefix(library: Library) -> str:
    """Return how the classes of a family begin: TformerDecoder."""
    return library.model_name.removesuffix(CAUSAL)
