"""The Hugging Face libraries imported once for many processes (warm_python.py), though they read
the environment while they are imported.

They are imported with folders that stand for the real ones; in a forked process each variable of a
module that holds such a folder gets that of the process. What else they read, a process must have
with the same value: `import_them` returns it, and another process imports them itself.
"""

import importlib
import os
import sys
from pathlib import Path, PurePath

# Folders that each process may have for itself.
FOLDERS = ("HOME", "HF_HOME", "HF_MODULES_CACHE")
STANDS = "/stands-for/"
OWN = ("HF_", "HUGGING", "TRANSFORMERS_", "ACCELERATE_", "DATASETS_", "USE_", "WANDB_", "XLA_")
# What nearly every program of the tests imports sooner or later, transformers' own lazily.
LIBRARIES = (
    *("transformers", "transformers.dynamic_module_utils", "transformers.generation.utils"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.trainer", "transformers.pipelines", "transformers.loss.loss_utils"),
)


def import_them() -> dict[str, str | None]:
    """Import the libraries; return the variables that they have read, with their values."""
    told = {name: os.environ.get(name) for name in FOLDERS}
    os.environ.update({name: STANDS + name for name in FOLDERS})
    read: set[str] = set()
    environ = type(os.environ)
    plain = environ.__getitem__

    def noted(self, name):
        read.add(name)
        return plain(self, name)

    environ.__getitem__ = noted
    try:
        for name in LIBRARIES:
            importlib.import_module(name)
        # A table that transformers makes when the first model is opened, in a quarter of a second.
        mapping = importlib.import_module("transformers.conversion_mapping")
        mapping.get_checkpoint_conversion_mapping("")
    finally:
        environ.__getitem__ = plain
        os.environ.update({name: value for name, value in told.items() if value})
    names = {name for name in read if name.startswith(OWN)} - {*FOLDERS}
    return {name: os.environ.get(name) for name in sorted(names)}


def places() -> list[tuple[dict, str, object]]:
    """Return the variables of modules that hold a folder which stands for another."""
    return [
        (module.__dict__, name, value)
        for module in list(sys.modules.values())
        if isinstance(module, type(sys)) and module.__name__ != __name__
        for name, value in list(module.__dict__.items())
        if issubclass(type(value), (str, PurePath)) and STANDS in str(value)
    ]


def lead_to(environment: dict[str, str], found: list[tuple[dict, str, object]]) -> None:
    """Let those variables hold the folders of this process, huggingface_hub's own by default."""
    home = environment.get("HOME") or str(Path.home())
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache"), "huggingface")
    hub = environment.get("HF_HOME") or str(cache)
    modules = environment.get("HF_MODULES_CACHE") or str(Path(hub, "modules"))
    folders = {"HF_MODULES_CACHE": modules, "HF_HOME": hub, "HOME": home}
    for variables, name, value in found:
        text = str(value)
        for folder, place in folders.items():
            text = text.replace(STANDS + folder, place)
        variables[name] = text if isinstance(value, str) else Path(text)
    found.clear()
