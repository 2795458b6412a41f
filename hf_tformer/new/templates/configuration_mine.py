"""The fields of Mine: those of TformerDecoderConfig, and its own."""

from transformers.configuration_utils import strict

from .configuration_decoder import TformerDecoderConfig

if False:  # read, not run: transformers copies and compares the model's code with this file
    from .modeling_mine import MineModel  # noqa: F401

AUTO_MAP = {
    "AutoConfig": "configuration_mine.MineConfig",
    "AutoModel": "modeling_mine.MineModel",
    "AutoModelForCausalLM": "modeling_mine.MineForCausalLM",
}


@strict  # checks the types
class MineConfig(TformerDecoderConfig):
    """A configuration, each field of which has a type and a default."""

    model_type = "mine"

    first_temperature: float | int = 1.0  # of each head, before training

    def __post_init__(self, **kwargs: object) -> None:
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.first_temperature <= 0:
            raise ValueError(f"first_temperature is {self.first_temperature}: choose more than 0")


MineConfig.register_for_auto_class()
