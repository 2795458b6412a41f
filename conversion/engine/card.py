"""The model card of a conversion: the source, the comparison, and how to use the model."""

from pathlib import Path
from typing import Any, TypeGuard

import yaml
from huggingface_hub import ModelCard, ModelCardData, metadata_load

import hf_tformer
from hf_tformer.publishing import card as our_card
from hf_tformer.publishing.upload import count_parameters

from .aliases import FilePath
from .format import Format
from .request import Conversion
from .translation import AnyFormat

TEXT = """\
# {name}

{what} of {parameters:,} parameters, {reader}.

{description}

## Use

```python
{snippet}
```
"""
WITH_TORCH = """\
from safetensors.torch import load_file

weights = load_file("{}/model.safetensors")  # config.json holds what no shape determines\
"""
CARD_BYTES = 2**20  # reading a larger one as YAML takes minutes
OF_OURS = ("hf_tformer", "custom_code")  # tags of a folder that brings our code


def write_card(
    folder: Path, format: AnyFormat, to_ours: bool, done: Conversion, src: FilePath
) -> None:
    """Write README.md into `folder`, with the metadata of the card of `src`."""
    source = Path(src).resolve()
    metadata = metadata_of(source / "README.md")
    write = write_ours if to_ours else write_theirs
    card = write(folder, format, done, about(done, format, to_ours, source, metadata))
    tags = [tag for tag in metadata.get("tags") or [] if tag not in OF_OURS]
    fields = {**card.data.to_dict(), **metadata, "library_name": library_of(format, to_ours)}
    fields["tags"] = [*(card.data.tags or []), *tags]
    data = ModelCardData(**fields, ignore_metadata_errors=True)
    ModelCard(f"---\n{data.to_yaml()}\n---\n\n{card.text}").save(folder / "README.md")


def metadata_of(path: Path) -> dict[str, Any]:
    """Return the metadata of a card, nothing if it cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > CARD_BYTES:
            return {}
        fields = metadata_load(path) or {}
    except (ValueError, RecursionError, yaml.YAMLError):
        return {}
    tags = fields.get("tags")
    if not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        fields.pop("tags", None)
    # Fields become arguments, except those that huggingface_hub's card has itself.
    taken = (*dir(ModelCardData), "self", "ignore_metadata_errors")
    fields = {name: value for name, value in fields.items() if str(name) == name not in taken}
    try:
        ModelCardData(**fields, ignore_metadata_errors=True).to_yaml()
    except Exception:  # such fields fail in many ways
        return {}
    return fields


def about(
    done: Conversion, format: AnyFormat, to_ours: bool, source: Path, metadata: dict[str, Any]
) -> str:
    proof = (
        "The logits of the two were not compared."
        if done.difference is None
        else "Both were given the same padded batch; the largest difference of their "
        f"{done.compared} was {done.difference:.1e}."
    )
    kept = "License, languages and data sets are those of its card."
    kind = format.name if to_ours else "hf_tformer"
    tool = f"hf_tformer {hf_tformer.__version__}"
    text = f"Converted from the {kind} checkpoint `{source.name}` by {tool}. {proof}"
    if to_ours and done.left_out:
        text += f" Omitted: {'; '.join(done.left_out)}."
    return f"{text} {kept}" if metadata else text


def write_ours(folder: Path, format: AnyFormat, done: Conversion, description: str) -> ModelCard:
    return our_card.write_card(
        folder,
        done.folder.absolute().name,
        parameters=count_parameters(folder),
        description=description,
        license=None,  # known from the source's card only
    )


def write_theirs(folder: Path, format: AnyFormat, done: Conversion, description: str) -> ModelCard:
    what, task, auto = our_card.about(config_of(format))
    name = done.folder.absolute().name
    text = TEXT.format(
        name=name,
        what=what,
        parameters=count_parameters(folder),
        reader=reader_of(format),
        description=description,
        snippet=snippet(folder, name, auto)
        if is_of_transformers(format)
        else WITH_TORCH.format(name),
    )
    data = ModelCardData(library_name=library_of(format, False), pipeline_tag=task)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def config_of(format: AnyFormat) -> dict[str, object]:
    """Return the fields of our configuration that name the class of the format."""
    config_class = format.our_classes.config_class
    return {"model_type": config_class.model_type, "architectures": [format.our_classes.model_name]}


def is_of_transformers(format: AnyFormat) -> TypeGuard[Format]:
    return isinstance(format, Format)


def library_of(format: AnyFormat, to_ours: bool) -> str:
    return "transformers" if to_ours or is_of_transformers(format) else "pytorch"


def reader_of(format: AnyFormat) -> str:
    if is_of_transformers(format):
        return f"which transformers reads as {format.classes[1]}"
    return f"for {format.remark}"


def snippet(folder: Path, name: str, auto: str) -> str:
    has_tokenizer = (folder / "tokenizer_config.json").exists()
    loading = our_card.WITH_TOKENIZER if has_tokenizer else our_card.WITHOUT_TOKENIZER
    loading = loading.format(auto=auto, pinned=f'"{name}"', trust="")
    return our_card.program(loading, auto, has_tokenizer)
