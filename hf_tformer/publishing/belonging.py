"""The files of a folder that belong to a model: `publish` sends these, and names the others.

Everything is chosen by its name. A folder in which somebody trains holds tokens, notes, data and
programs beside the model, and what is once on the Hub has been read by somebody.
"""

import re
from pathlib import Path

from ..checking.folder import Folder, code_file
from ..checking.source_code import reached
from .errors import PublishError

NAMES = {
    *("config.json", "generation_config.json"),
    # tokenizers of transformers
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "dict.txt", "normalizer.json"),
    *("target_vocab.json", "vocab-src.json", "vocab-tgt.json", "source.spm", "target.spm"),
    *("tokenizer.model", "spiece.model", "sentencepiece.model", "sentencepiece.bpe.model"),
    *("chat_template.json", "chat_template.jinja"),
    # processors
    *("preprocessor_config.json", "processor_config.json", "image_processor_config.json"),
    "video_preprocessor_config.json",
    # what a reader has to know
    *("README.md", "LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.txt"),
}
# model.safetensors, its parts, its variants (model.fp16.safetensors) and their index
WEIGHTS = re.compile(
    r"model(\.\w+)?(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index(\.\w+)?\.json"
)


def belonging(folder: Path) -> set[str]:
    """Return the names of the files in a folder that belong to its model."""
    names = {path.name for path in folder.iterdir()}
    chosen = {name for name in names if name in NAMES or WEIGHTS.fullmatch(name)}
    return chosen | (code_of(folder) & names)


def code_of(folder: Path) -> set[str]:
    """Return the files of code that loading asks for: those that a JSON file of the model names,
    and the siblings that they import."""
    opened = Folder(folder.resolve())
    named = {code_file(reference) for reference in opened.references if reference[0] in NAMES}
    imported = set()
    for source in reached(opened.all_sources, named):
        if source.fault:
            raise PublishError(f"{source.fault}: this file cannot be imported")
        imported |= {f"{module.lstrip('.')}.py" for _, module in source.relative_imports()}
    return named | imported
