"""Models of transformers with random weights, and ours with the same ones."""

import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

import hf_tformer
from conversion import import_checkpoint
from conversion.engine.registry import FORMATS
from hf_tformer import fast

from .measure import OURS, Absent, Contestants, Run, Settings

Inputs = dict[str, torch.Tensor]

PAD, BOS, END, FIRST_WORD = 0, 1, 2, 3


class Pair:
    """A model of theirs and one of ours that compute the same. Each is built when it is needed.

    `head` is the class of their model, by default the one that their format names first.
    """

    dtype = torch.float32

    def __init__(self, kind: str, settings: Settings, head: str | None = None, **sizes: Any):
        self.kind, self.settings, self.sizes = kind, settings, sizes
        self.config_name, named = FORMATS[kind].classes
        self.name = head or named

    @cached_property
    def theirs(self) -> PreTrainedModel:
        config_class, model_class = (
            getattr(transformers, name) for name in (self.config_name, self.name)
        )
        model = model_class(config_class(**self.sizes))
        randomise(model)
        return self.place(model)

    @cached_property
    def ours(self) -> PreTrainedModel:
        """Theirs, saved and converted by the public conversion."""
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = Path(folder, "theirs"), Path(folder, "ours")
            self.theirs.save_pretrained(theirs)
            import_checkpoint(theirs, ours, verify=False)
            config = transformers.AutoConfig.from_pretrained(ours)
            model_class = getattr(hf_tformer, config.architectures[0])
            return self.place(model_class.from_pretrained(ours))

    def place(self, model: PreTrainedModel) -> PreTrainedModel:
        return copied(model.to(self.dtype).eval())

    @cached_property
    def compiled(self) -> PreTrainedModel:
        """Theirs again, on the same tensors, behind torch.compile."""
        refuse_to_compile(self.settings)
        torch.compiler.reset()  # after some models of a kind it gives up and runs them eagerly
        twin = type(self.theirs)(self.theirs.config)
        twin.load_state_dict(self.theirs.state_dict(), assign=True)
        twin.tie_weights()
        twin.generation_config = self.theirs.generation_config
        twin.eval().compile()
        return twin

    def contestants(self, prepare: Callable[..., Run], *args: Any, **options: Any) -> Contestants:
        """Return both models as contestants: what `prepare` makes of each."""
        return {
            name: self.contestant(side, prepare, *args, **options)
            for name, side in ((OURS, "ours"), (self.name, "theirs"))
        }

    def contestant(
        self, side: str, prepare: Callable[..., Run], *args: Any, **options: Any
    ) -> Callable[[], Run]:
        return lambda: prepare(getattr(self, side), *args, **options)

    def batch(self, lengths: Sequence[int], padding_side: str = "right") -> Inputs:
        return random_batch(self.sizes["vocab_size"], lengths, padding_side)


def copied(model: PreTrainedModel) -> PreTrainedModel:
    """Copy the weights: those read from a file lie in pages of it, which are slower."""
    for tensor in model.parameters():
        tensor.data = tensor.data.clone()
    return model


def refuse_to_compile(settings: Settings) -> None:
    if settings.quick or settings.defaults_only:
        raise Absent("left out, compiling takes minutes")
    try:
        fast.refuse_without_compiler()
    except RuntimeError as error:
        raise Absent(str(error)) from error


@torch.no_grad()
def randomise(model: PreTrainedModel) -> None:
    """Draw weights that generate varied tokens: greedy decoding of fresh ones repeats a single one.

    Logits have a spread of three, as those of trained models. The gain of the last norm has random
    signs, or a tied projection would answer each token with itself. Branches are large where norms
    come first, so that the context decides and not the last token alone; and small where norms come
    last, since each of them fades what came before. The queries of T5, which does not scale its
    scores, hold the scale. The logit of the end token is zero, so that no sequence ends by chance.
    """
    is_t5 = model.config.model_type == "t5"
    branch_gain = 0.5 if model.config.is_encoder_decoder and not is_t5 else 1.5
    generator = torch.Generator().manual_seed(0)
    width = model.get_input_embeddings().embedding_dim
    for name, tensor in model.named_parameters():
        if not tensor.requires_grad:  # Marian's sinusoids
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if tensor.ndim == 1:
            tensor.copy_(1 + 0.1 * noise if name.endswith("weight") else 0.02 * noise)
        elif tensor.shape[0] == model.config.vocab_size:
            tensor.copy_(noise / width**0.5)
            tensor[[PAD, END]] = 0
        else:
            tensor.copy_(noise * branch_gain / tensor.shape[-1] ** 0.5)
        if is_t5 and name.endswith("Attention.q.weight"):
            tensor.div_(model.config.d_kv**0.5)
    gain = last_gain(model)
    gain.copy_(3 * torch.randn(gain.shape, generator=generator).sign())


def last_gain(model: PreTrainedModel) -> torch.Tensor:
    """Return the gain of the norm before the projection: the last one of the decoder in order."""
    gains = [
        tensor
        for name, tensor in model.state_dict().items()
        if name.lower().endswith(("norm.weight", "ln_f.weight")) and "encoder.layers" not in name
    ]
    return gains[-1]


def random_batch(vocab_size: int, lengths: Sequence[int], padding_side: str = "right") -> Inputs:
    """Draw sequences of these lengths without special tokens, padded to the longest."""
    longest = max(lengths)
    generator = torch.Generator().manual_seed(1)
    shape = (len(lengths), longest)
    ids = torch.randint(FIRST_WORD, vocab_size, shape, generator=generator)
    mask = torch.ones_like(ids)
    for row, length in enumerate(lengths):
        padded = slice(length, None) if padding_side == "right" else slice(longest - length)
        ids[row, padded], mask[row, padded] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}
