"""Tests for models of your own to inherit: the promises that this package keeps for its models.

    from hf_tformer.testing import DecoderPromises

    class TestMine(DecoderPromises):
        model_class = MineForCausalLM

promise.py          what a promise is, how a class waives one and describes its model
files.py            saved models, also in processes without this package
logits.py           padding, packing, backends, outputs, vocabulary
generation.py       caches and generate
training.py         losses, gradients, Trainer, PEFT, torch.compile
families.py         small models of each family and how they are called
travel.py           a process without this package; simulated_flash.py: the kernel
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{room}" for room in ("promise", "files", "generation", "logits", "training"))
)

from .families import Decoder, Encoder, Mixture, Seq2Seq  # noqa: E402 (pytest must rewrite them first)
from .files import FilePromises  # noqa: E402
from .generation import GenerationPromises  # noqa: E402
from .logits import LogitsPromises, PackingPromises  # noqa: E402
from .promise import BrokenPromiseError  # noqa: E402
from .training import TrainingPromises  # noqa: E402


class DecoderPromises(
    GenerationPromises, FilePromises, LogitsPromises, PackingPromises, TrainingPromises
):
    """Promises of a decoder-only language model."""

    family_class, auto_name = Decoder, "AutoModelForCausalLM"


class MixturePromises(DecoderPromises):
    """Promises of a mixture of experts."""

    family_class = Mixture


class Seq2SeqPromises(GenerationPromises, FilePromises, LogitsPromises, TrainingPromises):
    """Promises of an encoder-decoder."""

    family_class, auto_name = Seq2Seq, "AutoModelForSeq2SeqLM"


class EncoderPromises(FilePromises, LogitsPromises, PackingPromises, TrainingPromises):
    """Promises of an encoder with a head for masked language modelling."""

    family_class, auto_name = Encoder, "AutoModelForMaskedLM"


__all__ = [
    "BrokenPromiseError",
    "DecoderPromises",
    "EncoderPromises",
    "MixturePromises",
    "Seq2SeqPromises",
]
