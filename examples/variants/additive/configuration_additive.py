"""The fields of Additive: those of TformerSeq2SeqConfig, and its own."""

from transformers.configuration_utils import strict

from .configuration_seq2seq import TformerSeq2SeqConfig

if False:  # read, not run: transformers copies and compares the model's code with this file
    from .modeling_additive import AdditiveModel  # noqa: F401

AUTO_MAP = {
    "AutoConfig": "configuration_additive.AdditiveConfig",
    "AutoModel": "modeling_additive.AdditiveModel",
    "AutoModelForSeq2SeqLM": "modeling_additive.AdditiveForConditionalGeneration",
}


@strict  # checks the types
class AdditiveConfig(TformerSeq2SeqConfig):
    model_type = "additive"

    def __post_init__(self, **kwargs: object) -> None:
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)


AdditiveConfig.register_for_auto_class()
