"""The model card of an export: the program that opens it, and what was proven."""

from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

import hf_tformer
from hf_tformer.publishing import card as our_card

from ..engine.card import OF_OURS, metadata_of
from ..engine.destination import in_words
from .export import Export
from .proof import Proof
from .runtime import Source

TEXT = """\
# {name}

{what} for {title}, in {dtype}, {size}.

Exported from the hf_tformer checkpoint `{source}` by hf_tformer {version}. {proof}

## Use

```{language}
{program}
```
"""
NOT_PROVEN = "Its outputs were not compared with those of the source model."


def write_card(folder: Path, source: Source, done: Export) -> None:
    """Write README.md, with the metadata of the source's card."""
    config = {"model_type": source.config.model_type, "architectures": [source.library.model_name]}
    what, task, _ = our_card.about(config)
    name = done.folder.absolute().name
    text = TEXT.format(
        name=name,
        what=what,
        title=done.runtime.title,
        dtype=done.dtype,
        size=in_words(done.size),
        source=source.folder.resolve().name,
        version=hf_tformer.__version__,
        proof=in_sentences(done.proof, done.runtime.title),
        language=done.runtime.language,
        program=done.runtime.program(source, name),
    )
    metadata = metadata_of(source.folder / "README.md")
    tags = [tag for tag in metadata.get("tags") or [] if tag not in OF_OURS]
    fields = {"pipeline_tag": task, **metadata, "library_name": done.runtime.library_name}
    data = ModelCardData(**{**fields, "tags": tags or None}, ignore_metadata_errors=True)
    ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}").save(folder / "README.md")


def in_sentences(proof: Proof | None, title: str) -> str:
    if proof is None:
        return NOT_PROVEN
    sentences = []
    if proof.is_packed:
        sentences.append(
            "The file was proven in float32 and packed then; each tensor differs by no more than "
            "its type rounds. In float32,"
        )
    if proof.difference is not None:
        sentences.append(
            f"{title} and the model were given the same batches: the largest difference was "
            f"{proof.difference:.1e}, of numbers up to {proof.largest:.1f}."
        )
    if proof.few_bits is not None:
        near = proof.few_bits
        sentences.append(
            f"Its weights are rounded: 99 of 100 numbers differ by at most {near.usual:.1e}, the "
            f"most probable token is the same in {near.same_best:.0%} of the places, and the mean "
            f"divergence (Kullback-Leibler) is {near.divergence:.1e} nats."
        )
    for num_beams, (equal, count) in proof.equal_texts.items():
        way = "greedily" if num_beams == 1 else f"with {num_beams} beams"
        sentences.append(
            f"Of {count} sequences generated {way}, {equal} have the tokens of `generate()`."
        )
    if proof.changed is not None:
        sentences.append(first_change(*proof.changed))
    return " ".join(sentences)


def first_change(ours: list[int], theirs: list[int]) -> str:
    """Describe where the first output that differs leaves ours."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    place = next((place for place, (one, other) in pairs if one != other), None)
    if place is None:
        return f"The first that differs has {len(theirs)} tokens instead of {len(ours)}."
    return (
        f"The first that differs has token {theirs[place]} in place {place + 1}, where "
        f"`generate()` has {ours[place]}."
    )
