"""The model card: what the model is, how to load it, and what its code files hash to."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from .. import __version__
from ..checking.folder import digest
from ..families import FAMILIES

# Auto class → the task that the Hub files a model under.
TASKS = {
    "AutoModel": "feature-extraction",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForSeq2SeqLM": "translation",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTextEncoding": "feature-extraction",
    "AutoModelForTokenClassification": "token-classification",
}
SIZES = (
    "num_hidden_layers",
    "encoder_layers",
    "decoder_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "source_vocab_size",
    "max_position_embeddings",
    "position_embedding_type",
    "norm_type",
    "mlp_type",
)

WITH_TOKENIZER = """\
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained({pinned}{trust})
tokenizer = AutoTokenizer.from_pretrained({pinned}, trust_remote_code=False)
inputs = tokenizer("Some text", return_tensors="pt")"""
WITHOUT_TOKENIZER = """\
import torch
from transformers import {auto}

model = {auto}.from_pretrained({pinned}{trust})
inputs = {{"input_ids": torch.tensor([[3, 4, 5]])}}"""
USES = {
    "AutoModelForCausalLM": "tokens = model.generate(**inputs, max_new_tokens=20)",
    "AutoModelForSeq2SeqLM": "tokens = model.generate(**inputs, num_beams=4, max_new_tokens=20)",
    "AutoModelForMaskedLM": "tokens = model(**inputs).logits.argmax(-1)",
}
CLASSES = """\
classes = model(**inputs).logits[0].argmax(-1, keepdim=True).flatten().tolist()
print([model.config.id2label[i] for i in classes])"""
SHAPE = "print(model(**inputs).to_tuple()[0].shape)"
SHOW_TEXT = "print(tokenizer.batch_decode(tokens, skip_special_tokens=True))"
SHOW = "print(tokens)"

INSTALLED = """\
Or install the package that the code comes from, and trust nothing:

```python
{program}
```

"""
TEXT = """\
# {name}

{description}

| | |
|---|---|
{sizes}

## Use

The code of this model stands beside its weights. Read it before you run it, and pin the revision:

```python
{remote}
```

{installed}{trained}{results}## Files of code

`tformer check {repo_id}` says whether they equal those of the installed package.

| file | SHA-256 |
|---|---|
{hashes}
"""


def write_card(
    folder: str | os.PathLike,
    repo_id: str,
    *,
    parameters: int,
    revision: str | None = None,
    description: str | None = None,
    training: str | None = None,
    metrics: dict[str, object] | None = None,
    license: str | None = "apache-2.0",
    language: str | list[str] | None = None,
    tags: Sequence[str] = (),
) -> ModelCard:
    """Write README.md into a saved folder; `revision` is the commit that its programs pin."""
    config = read_config(folder)
    what, task, _ = about(config)
    summary = f"{what} {size(config, parameters)}, made with hf_tformer {__version__}."
    digests = ((f"`{file}`", f"`{digest}`") for file, digest in code_hashes(folder).items())
    is_ours = config["model_type"] in FAMILIES  # a user's own model needs its code
    installed = snippet(folder, repo_id, revision, installed=True) if is_ours else ""
    results = "| metric | value |\n|---|---|\n" + table((metrics or {}).items())
    text = TEXT.format(
        name=repo_id.split("/")[-1],
        repo_id=repo_id,
        description=f"{summary}\n\n{description}" if description else summary,
        sizes=table((name, config.get(name)) for name in SIZES),
        remote=snippet(folder, repo_id, revision, installed=False),
        installed=INSTALLED.format(program=installed) if is_ours else "",
        trained=f"## Training\n\n{training}\n\n" if training else "",
        results=f"## Results\n\n{results}\n\n" if metrics else "",
        hashes=table(digests),
    )
    data = ModelCardData(
        library_name="transformers",
        license=license,
        language=language,
        pipeline_tag=task,
        tags=["hf_tformer", "custom_code", *tags],
    )
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")
    card.save(Path(folder) / "README.md")
    return card


def size(config: dict, parameters: int) -> str:
    """Return the number of parameters as words; a quantised file packs several into a number."""
    if method := (config.get("quantization_config") or {}).get("quant_method"):
        return f"with weights quantised by {method}, whose package opens them"
    return f"of {parameters:,} parameters"


def table(rows: Iterable[tuple[str, object]]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in rows if value is not None)


def read_config(folder: str | os.PathLike) -> dict:
    """Return the configuration of a saved folder, without running its code."""
    from transformers import PreTrainedConfig

    return PreTrainedConfig.get_config_dict(folder)[0]


def code_hashes(folder: str | os.PathLike) -> dict[str, str]:
    """Return the SHA-256 of every Python file of a folder, by file name."""
    files = sorted(Path(folder).glob("*.py"))
    return {path.name: digest(path) for path in files}


def snippet(folder: str | os.PathLike, repo_id: str, revision: str | None, installed: bool) -> str:
    """Return a program that loads the published model and runs it once."""
    auto_class = auto_class_of(read_config(folder))
    has_tokenizer = (Path(folder) / "tokenizer_config.json").exists()
    loading = (WITH_TOKENIZER if has_tokenizer else WITHOUT_TOKENIZER).format(
        auto=auto_class,
        pinned=f'"{repo_id}", revision="{revision or "main"}"',
        trust="" if installed else ", trust_remote_code=True",
    )
    text = program(loading, auto_class, has_tokenizer)
    return f"import hf_tformer\n{text}" if installed else text


def program(loading: str, auto_class: str, has_tokenizer: bool) -> str:
    """Return a program: the lines that load a model, and lines that use it."""
    if auto_class not in USES:
        use = CLASSES if TASKS[auto_class].endswith("-classification") else SHAPE
    else:
        use = f"{USES[auto_class]}\n{SHOW_TEXT if has_tokenizer else SHOW}"
    return f"{loading}\n{use}"


def auto_class_of(config: dict) -> str:
    """Return the Auto class that opens a checkpoint with the head that it was saved from."""
    return about(config)[2]


def about(config: dict) -> tuple[str, str, str]:
    """Return what a model is called, its task, and the Auto class that opens it with its head."""
    model_type, class_name = config["model_type"], (config.get("architectures") or [None])[0]
    if family := FAMILIES.get(model_type):
        what, usual, heads = family.description, family.usual_auto, family.models
        if class_name == family.standalone_encoder:
            what = f"The encoder of {what[0].lower()}{what[1:]}"
    else:
        what, usual = f"A model of its own kind, {model_type},", "AutoModel"
        heads = {auto: name.split(".")[-1] for auto, name in config["auto_map"].items()}
    known = (auto for auto, name in heads.items() if name == class_name and auto in TASKS)
    auto = next(known, usual)
    return what, TASKS[auto], auto
