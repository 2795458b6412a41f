"""Models of transformers with random weights, and ours with the same ones."""

import tempfile
from functools import cached_property
from pathlib import Path

import torch
import transformers

from conversion import import_checkpoint
from conversion.engine.registry import FORMATS
from hf_tformer import (
    TformerDecoderForCausalLM,
    TformerEncoderModel,
    TformerSeq2SeqForConditionalGeneration,
    fast,
)

from .measure import Absent

PAD, BOS, END, FIRST_WORD = 0, 1, 2, 3
OUR_CLASSES = {
    model_class.__name__: model_class
    for model_class in (
        TformerDecoderForCausalLM,
        TformerEncoderModel,
        TformerSeq2SeqForConditionalGeneration,
    )
}


class Pair:
    """A model of theirs and one of ours that compute the same. Each is built when it is needed."""

    def __init__(self, kind, settings, **sizes):
        self.kind, self.settings, self.sizes = kind, settings, sizes

    @cached_property
    def theirs(self):
        config_class, model_class = (
            getattr(transformers, name) for name in FORMATS[self.kind].classes
        )
        model = model_class(config_class(**self.sizes))
        randomise(model)
        return self.place(model)

    @cached_property
    def ours(self):
        with tempfile.TemporaryDirectory() as folder:
            self.theirs.save_pretrained(Path(folder) / "theirs")
            return self.place(converted(Path(folder)))

    def place(self, model):
        """In memory alike: what was read from a file lies in pages of it, which are slower."""
        model = model.to(self.settings.device, self.settings.torch_dtype).eval()
        for tensor in model.parameters():
            tensor.data = tensor.data.clone()
        return model

    @cached_property
    def compiled(self):
        """Theirs again, on the same tensors, behind torch.compile."""
        refuse_to_compile(self.settings)
        torch.compiler.reset()  # after some models of a kind it gives up and runs them plainly
        twin = type(self.theirs)(self.theirs.config)
        twin.load_state_dict(self.theirs.state_dict(), assign=True)
        twin.tie_weights()
        twin.generation_config = self.theirs.generation_config
        twin.eval().compile()
        return twin


def converted(folder):
    """What lies in folder/theirs as a model of ours, through the public conversion."""
    import_checkpoint(folder / "theirs", folder / "ours", verify=False)
    config = transformers.AutoConfig.from_pretrained(folder / "ours")
    return OUR_CLASSES[config.architectures[0]].from_pretrained(folder / "ours")


def refuse_to_compile(settings):
    if settings.quick or settings.defaults_only:
        raise Absent("left out, compiling takes minutes")
    if settings.device != "cpu":
        return
    try:
        fast.refuse_without_compiler()
    except RuntimeError as error:
        raise Absent(str(error)) from error


@torch.no_grad()
def randomise(model, seed=0):
    """Weights that write varied text: greedy decoding of fresh ones repeats a single token.

    Scores have a spread of three, as those of trained models. The gain of the last norm has random
    signs, or a tied projection would answer each token with itself. Branches are loud where norms
    come first, so that the context decides and not the last token alone; and quiet where norms come
    last, since each of them fades what came before. The queries of T5, which does not scale its
    scores, hold the scale. The end token scores zero, so that no sequence ends by chance.
    """
    is_t5 = model.config.model_type == "t5"
    loudness = 0.5 if model.config.is_encoder_decoder and not is_t5 else 1.5
    generator = torch.Generator().manual_seed(seed)
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
            tensor.copy_(noise * loudness / tensor.shape[-1] ** 0.5)
        if is_t5 and name.endswith("Attention.q.weight"):
            tensor.div_(model.config.d_kv**0.5)
    gain = last_gain(model)
    gain.copy_(3 * torch.randn(gain.shape, generator=generator).sign())


def last_gain(model):
    """The gain of the norm before the projection: the last one of the decoder in its order."""
    names = [name for name in model.state_dict() if is_gain(name) and "encoder.layers" not in name]
    return model.state_dict()[names[-1]]


def is_gain(name):
    return name.lower().endswith(("norm.weight", "ln_f.weight"))


def random_ids(vocab_size, rows, length, settings, seed=1):
    """Token ids [rows, length] without the special ones."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(FIRST_WORD, vocab_size, (rows, length), generator=generator)
    return ids.to(settings.device)
