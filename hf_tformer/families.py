"""The one table of model families: their classes, their Auto classes and the files that hold them.

It imports neither torch nor transformers. Everything that has to know the families reads it, except
`AUTO_MAP` in model/configuration_*.py: those files travel with a checkpoint, and a test holds them
equal to this table.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Family(NamedTuple):
    """The names of a family's classes, and what a model card calls the family.

    `usual_auto` is the Auto class of the head that most checkpoints have. `standalone_encoder` is
    the class that `AutoModel` opens where a folder was saved from it.
    """

    name: str
    prefix: str  # of the names of its classes
    models: dict[str, str]  # Auto class → model class
    usual_auto: str
    description: str
    standalone_encoder: str | None = None

    @property
    def config(self) -> str:
        return f"{self.prefix}Config"

    @property
    def head(self) -> str:
        return self.models[self.usual_auto]

    @property
    def modules(self) -> dict[str, str]:
        """The module of hf_tformer.model that holds each public class."""
        models = (f"{self.prefix}PreTrainedModel", *self.models.values())
        modeling = dict.fromkeys(models, f"modeling_{self.name}")
        return {self.config: f"configuration_{self.name}", **modeling}

    def auto_map(self, architectures: Sequence[str] | None = None) -> dict[str, str]:
        """The `auto_map` of a config.json that was saved from `architectures`."""
        classes = {"AutoConfig": self.config, **self.models}
        if self.standalone_encoder and self.standalone_encoder in (architectures or ()):
            classes["AutoModel"] = self.standalone_encoder
        return {auto: f"{self.modules[name]}.{name}" for auto, name in classes.items()}


# model_type → family
FAMILIES = {
    "tformer_decoder": Family(
        name="decoder",
        prefix="TformerDecoder",
        models={
            "AutoModel": "TformerDecoderModel",
            "AutoModelForCausalLM": "TformerDecoderForCausalLM",
            "AutoModelForSequenceClassification": "TformerDecoderForSequenceClassification",
            "AutoModelForTokenClassification": "TformerDecoderForTokenClassification",
            "AutoModelForQuestionAnswering": "TformerDecoderForQuestionAnswering",
        },
        usual_auto="AutoModelForCausalLM",
        description="A decoder-only language model",
    ),
    "tformer_encoder": Family(
        name="encoder",
        prefix="TformerEncoder",
        models={
            "AutoModel": "TformerEncoderModel",
            "AutoModelForMaskedLM": "TformerEncoderForMaskedLM",
            "AutoModelForSequenceClassification": "TformerEncoderForSequenceClassification",
            "AutoModelForTokenClassification": "TformerEncoderForTokenClassification",
            "AutoModelForQuestionAnswering": "TformerEncoderForQuestionAnswering",
        },
        usual_auto="AutoModelForMaskedLM",
        description="An encoder",
    ),
    "tformer_mixture": Family(
        name="mixture",
        prefix="TformerMixture",
        models={
            "AutoModel": "TformerMixtureModel",
            "AutoModelForCausalLM": "TformerMixtureForCausalLM",
            "AutoModelForSequenceClassification": "TformerMixtureForSequenceClassification",
            "AutoModelForTokenClassification": "TformerMixtureForTokenClassification",
            "AutoModelForQuestionAnswering": "TformerMixtureForQuestionAnswering",
        },
        usual_auto="AutoModelForCausalLM",
        description="A mixture of experts",
    ),
    "tformer_seq2seq": Family(
        name="seq2seq",
        prefix="TformerSeq2Seq",
        models={
            "AutoModel": "TformerSeq2SeqModel",
            "AutoModelForSeq2SeqLM": "TformerSeq2SeqForConditionalGeneration",
            "AutoModelForTextEncoding": "TformerSeq2SeqEncoderModel",
        },
        usual_auto="AutoModelForSeq2SeqLM",
        description="An encoder-decoder",
        standalone_encoder="TformerSeq2SeqEncoderModel",
    ),
}
