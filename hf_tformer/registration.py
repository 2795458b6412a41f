"""Register our families with the Auto classes of transformers, without importing transformers.

Importing the Auto classes takes seconds and loads torch, which `import hf_tformer` must not. So
registering waits until other code has imported them.
"""

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .families import FAMILIES, Family


def load(family: Family, name: str) -> type:
    """Import one of a family's classes."""
    return getattr(importlib.import_module(f".model.{family.modules[name]}", __package__), name)


def register_configurations(configuration_auto: ModuleType) -> None:
    for model_type, family in FAMILIES.items():
        config_class = load(family, family.config)
        configuration_auto.AutoConfig.register(model_type, config_class, exist_ok=True)


def register_models(modeling_auto: ModuleType) -> None:
    for family in FAMILIES.values():
        config_class = load(family, family.config)
        for auto_name, model_name in family.models.items():
            model_class: Any = load(family, model_name)
            if auto_name == "AutoModel" and family.standalone_encoder:  # the folder decides
                model_class = model_class, load(family, family.standalone_encoder)
            getattr(modeling_auto, auto_name).register(config_class, model_class, exist_ok=True)


# The projections that PEFT adapts by default: their names are those of Llama.
PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def register_adapter_targets(constants: ModuleType) -> None:
    """Let `LoraConfig()` and its relatives work without target_modules, as they do for Llama."""
    for name, targets_of in vars(constants).items():
        if not name.endswith("_MODULES_MAPPING") or "llama" not in targets_of:
            continue
        targets = targets_of["llama"]
        if isinstance(targets, list) and {t.split(".")[-1] for t in targets} <= PROJECTIONS:
            for model_type in FAMILIES:
                targets_of.setdefault(model_type, list(targets))


def make_fast(modeling: ModuleType) -> None:
    """Replace in a family what makes it fast, as soon as somebody touches it."""
    importlib.import_module("hf_tformer.fast").patch(modeling.__name__)


# Module that travels with saved models → the module that completes it where this is installed
COMPLETED_BY = {
    "hf_tformer.model.configuration_base": "hf_tformer.limits",
    "hf_tformer.model.layers": "hf_tformer.scale.sharding",
    "hf_tformer.model.losses": "hf_tformer.fast.losses",
}


def complete(module: ModuleType) -> None:
    """Replace what a saved model carries in a simple form by the package's own form."""
    importlib.import_module(COMPLETED_BY[module.__name__])


WAITING = {
    "transformers.models.auto.configuration_auto": register_configurations,
    "transformers.models.auto.modeling_auto": register_models,
    "peft.utils.constants": register_adapter_targets,
    **dict.fromkeys(COMPLETED_BY, complete),
}
# Modules of hf_tformer.fast import families, which others of them complete.
WATCHED = ("transformers.", "peft.", "hf_tformer.model", "hf_tformer.fast")
WAITING |= {f"hf_tformer.model.modeling_{family.name}": make_fast for family in FAMILIES.values()}


class RegisterWhenQuiet(MetaPathFinder):
    """Find the modules of transformers and ours as usual, and register once no import is running.

    During an import, modules would meet that are half initialised: transformers imports its Auto
    classes from the files that our models are built on.
    """

    imports = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not WAITING or not fullname.startswith(WATCHED):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self.watch(spec.loader)
        return spec

    def watch(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # once is enough
            self.imports.depth = getattr(self.imports, "depth", 0) + 1
            try:
                execute(module)
            finally:
                self.imports.depth -= 1
            if self.imports.depth == 0:
                register_what_is_there()

        loader.exec_module = exec_module


def register_what_is_there() -> None:
    """Register what has been imported; modules that this imports are registered in their turn."""
    imports = RegisterWhenQuiet.imports
    imports.depth = getattr(imports, "depth", 0) + 1
    try:
        while ready := [name for name in WAITING if name in sys.modules]:
            if register := WAITING.pop(ready[0], None):  # None if another thread was faster
                register(sys.modules[ready[0]])
    finally:
        imports.depth -= 1


def register_when_needed() -> None:
    # The finder first: registering a configuration may import the modules still waited for.
    sys.meta_path.insert(0, RegisterWhenQuiet())
    register_what_is_there()
