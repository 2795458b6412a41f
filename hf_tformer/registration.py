"""Makes the Auto classes of transformers know both families, without importing transformers early.

Importing the Auto classes costs seconds and loads torch. Whoever imports them pays that; `import
hf_tformer` must not. So registering waits until they have been imported by someone.
"""

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder

# model_type → its configuration, and the class that answers each Auto class
FAMILIES = {
    "tformer_decoder": (
        "TformerDecoderConfig",
        {
            "AutoModel": "TformerDecoderModel",
            "AutoModelForCausalLM": "TformerDecoderForCausalLM",
            "AutoModelForSequenceClassification": "TformerDecoderForSequenceClassification",
            "AutoModelForTokenClassification": "TformerDecoderForTokenClassification",
            "AutoModelForQuestionAnswering": "TformerDecoderForQuestionAnswering",
        },
    ),
    "tformer_seq2seq": (
        "TformerSeq2SeqConfig",
        {
            "AutoModel": "TformerSeq2SeqModel",
            "AutoModelForSeq2SeqLM": "TformerSeq2SeqForConditionalGeneration",
        },
    ),
}


def register_configurations(configuration_auto):
    package = importlib.import_module("hf_tformer")
    for model_type, (config_name, _) in FAMILIES.items():
        configuration_auto.AutoConfig.register(
            model_type, getattr(package, config_name), exist_ok=True
        )


def register_models(modeling_auto):
    package = importlib.import_module("hf_tformer")
    for config_name, models in FAMILIES.values():
        for auto_name, model_name in models.items():
            auto_class = getattr(modeling_auto, auto_name)
            auto_class.register(
                getattr(package, config_name), getattr(package, model_name), exist_ok=True
            )


WAITING = {
    "transformers.models.auto.configuration_auto": register_configurations,
    "transformers.models.auto.modeling_auto": register_models,
}


class RegisterAfterImport(MetaPathFinder):
    """Finds the modules in WAITING as usual, but registers as soon as one has been executed."""

    def find_spec(self, fullname, path, target=None):
        if fullname not in WAITING:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = LoadThenRegister(spec.loader)
        return spec


class LoadThenRegister(Loader):
    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        module.__spec__.loader = module.__loader__ = self.loader
        register(module)


def register(module):
    """Registers with a module that has been imported; a mere look-up of it changes nothing."""
    if action := WAITING.pop(module.__name__, None):
        action(module)


def register_when_needed():
    # Before anything else: registering a configuration may import the modules still waited for.
    sys.meta_path.insert(0, RegisterAfterImport())
    for name in [name for name in WAITING if name in sys.modules]:
        register(sys.modules[name])
