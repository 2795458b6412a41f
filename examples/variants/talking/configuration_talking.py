"""The fields of Talking: those of TformerDecoderConfig, and its own."""

from transformers.configuration_utils import strict

from .configuration_decoder import TformerDecoderConfig

if False:  # read, not run: transformers copies and compares the model's code with this file
    from .modeling_talking import TalkingModel  # noqa: F401

AUTO_MAP = {
    "AutoConfig": "configuration_talking.TalkingConfig",
    "AutoModel": "modeling_talking.TalkingModel",
    "AutoModelForCausalLM": "modeling_talking.TalkingForCausalLM",
}


@strict  # checks the types
class TalkingConfig(TformerDecoderConfig):
    model_type = "talking"
    # Heads that talk stay in one process: each computes all of them.
    base_model_tp_plan = {
        n: x for n, x in TformerDecoderConfig.base_model_tp_plan.items() if "self_attn" not in n
    }

    def __post_init__(self, **kwargs: object) -> None:
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.attn_logit_softcapping is not None:
            raise ValueError(
                f"attn_logit_softcapping is {self.attn_logit_softcapping}, which talking heads do "
                "not apply: leave it None"
            )


TalkingConfig.register_for_auto_class()
