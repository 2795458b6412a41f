"""The fields of Local: those of TformerSeq2SeqConfig, and its own."""

from transformers.configuration_utils import strict

from .configuration_seq2seq import TformerSeq2SeqConfig

if False:  # read, not run: transformers copies and compares the model's code with this file
    from .modeling_local import LocalModel  # noqa: F401

AUTO_MAP = {
    "AutoConfig": "configuration_local.LocalConfig",
    "AutoModel": "modeling_local.LocalModel",
    "AutoModelForSeq2SeqLM": "modeling_local.LocalForConditionalGeneration",
}


@strict  # checks the types
class LocalConfig(TformerSeq2SeqConfig):
    model_type = "local"
    own_choices = {**TformerSeq2SeqConfig.own_choices, "alignment": ("monotonic", "predictive")}

    alignment: str = "predictive"  # Luong's local-p; monotonic: his local-m
    alignment_window: int = 4  # source tokens that are seen on each side of the place

    def __post_init__(self, **kwargs: object) -> None:
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.alignment_window < 1:
            raise ValueError(f"alignment_window is {self.alignment_window}: choose at least 1")


LocalConfig.register_for_auto_class()
