"""What this package promises of its models, for models of your own: tests to inherit.

    from hf_tformer.testing import DecoderPromises

    class TestMine(DecoderPromises):
        model_class = MineForCausalLM

promise.py    what a promise is, how a class waives one, and what it says of its model
files.py      saved, opened elsewhere
logits.py     padding, packing, backends, outputs, vocabulary
writing.py    caches and generate
training.py   losses, gradients, Trainer, PEFT, torch.compile
families.py   how a family is asked; travel.py: the reader elsewhere; simulated_flash.py: the kernel
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{room}" for room in ("promise", "files", "logits", "generation", "training"))
)

from .families import Decoder, Encoder, Seq2Seq  # noqa: E402 (pytest must rewrite them first)
from .files import FilePromises  # noqa: E402
from .logits import LogitsPromises, PackingPromises  # noqa: E402
from .promise import BrokenPromiseError  # noqa: E402
from .training import TrainingPromises  # noqa: E402
from .generation import WritingPromises  # noqa: E402


class DecoderPromises(
    FilePromises, LogitsPromises, PackingPromises, WritingPromises, TrainingPromises
):
    """Of a decoder-only language model."""

    family_class, auto_name = Decoder, "AutoModelForCausalLM"


class Seq2SeqPromises(FilePromises, LogitsPromises, WritingPromises, TrainingPromises):
    """Of an encoder-decoder."""

    family_class, auto_name = Seq2Seq, "AutoModelForSeq2SeqLM"


class EncoderPromises(FilePromises, LogitsPromises, PackingPromises, TrainingPromises):
    """Of an encoder with the head that finds masked tokens."""

    family_class, auto_name = Encoder, "AutoModelForMaskedLM"


__all__ = ["BrokenPromiseError", "DecoderPromises", "EncoderPromises", "Seq2SeqPromises"]
