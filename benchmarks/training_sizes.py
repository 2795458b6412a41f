"""Training steps of other sizes, number formats and families, and of an adapter, beside theirs.

A step is a forward and a backward pass. training.py compares with compiled models and with other
libraries, which takes minutes for each size.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import nn
from transformers import PreTrainedModel

from . import encoders, seq2seq
from .decoding import llama_pair, prompt
from .engines import library
from .measure import Absent, Run, Settings, Workload, Workloads
from .peers import Inputs, Pair
from .training import matrix_parameters, measured_step

FLOOR = 1.25
BFLOAT16 = "bfloat16 autocast"
# Millions of parameters in layers and words; words, rows, tokens of each, number format.
SIZES = (
    (19, 16000, 1, 256, "float32"),
    (19, 16000, 32, 256, "float32"),
    (19, 16000, 4, 1024, "float32"),
    (19, 128000, 4, 256, "float32"),
    (19, 16000, 4, 256, BFLOAT16),
    (125, 32000, 1, 256, "float32"),
    (125, 32000, 2, 1024, "float32"),
)
# Without dropout, which would draw other numbers for each.
WITHOUT_DROPOUT = {
    "marian": ("dropout", "attention_dropout", "activation_dropout"),
    "t5": ("dropout_rate",),
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "modernbert": (),
}
HIDDEN, IGNORED = 0.3, -100  # share of the words that a masked model has to guess


def training_sizes(settings: Settings) -> Workloads:
    yield from decoders(settings)
    for task, pair, inputs in other_families(settings):
        pair.sizes |= dict.fromkeys(WITHOUT_DROPOUT[pair.kind], 0.0)
        yield Workload(task, pair.contestants(step, inputs), {pair.name: FLOOR})
    pair, (rows, length) = llama_pair(settings, 125), settings.pick((4, 256), (2, 12))
    ids = prompt(pair, rows, length)["input_ids"]
    inputs = {"input_ids": ids, "labels": ids}
    yield Workload(
        f"LoRA of rank 16, 125M parameters, {rows} × {length} tokens",
        pair.contestants(step_of_adapter, inputs),
        {pair.name: FLOOR},
    )


def decoders(settings: Settings) -> Workloads:
    for millions, words, rows, length, number_format in SIZES:
        words, rows, length = settings.pick((words, rows, length), (words // 100, 2, 12))
        pair = llama_pair(settings, millions, vocab_size=words, rms_norm_eps=1e-6)
        ids = prompt(pair, rows, length)["input_ids"]
        inputs = {"input_ids": ids, "labels": ids}
        named = "" if number_format == "float32" else f", {number_format}"
        yield Workload(
            f"{millions}M parameters, vocabulary {words}, {rows} × {length} tokens{named}",
            pair.contestants(partial(step, autocast=CONTEXTS[number_format]), inputs),
            {pair.name: FLOOR},
            work={"flops": 6 * matrix_parameters(pair.sizes) * ids.numel()},
            tolerance=1e-3 if number_format == "float32" else 0.05,
        )


def other_families(settings: Settings) -> Iterator[tuple[str, Pair, Inputs]]:
    """Yield an encoder-decoder of two kinds, and encoders that guess words."""
    rows, longest = settings.pick((16, 48), (3, 9))
    for kind, pair in (
        ("marian", seq2seq.pair_of("marian", settings)),
        ("t5", seq2seq.t5_pair(settings, 512, 6, 32128)),
    ):
        inputs = seq2seq.sources(pair, rows, longest)
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)
        yield f"{kind}, {rows} pairs of up to {longest} tokens", pair, {**inputs, "labels": labels}
    for kind, head in (("modernbert", "ModernBertForMaskedLM"), ("bert", "BertForMaskedLM")):
        pair = encoders.pair_of(kind, settings, 512, 6, head)
        inputs = encoders.sentences_of(pair, rows, settings.pick(128, 10))
        ids, real = inputs["input_ids"], inputs["attention_mask"].bool()
        is_hidden = torch.rand(ids.shape, generator=torch.Generator().manual_seed(5)) < HIDDEN
        labels = ids.masked_fill(~(is_hidden & real), IGNORED)
        task = f"{kind}, 512 wide, 6 layers, {rows} sequences of up to {ids.shape[1]} tokens"
        yield task, pair, {**inputs, "labels": labels}


def bfloat16_autocast() -> AbstractContextManager[None]:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise Absent("this processor multiplies no bfloat16, and a step would take minutes")
    return torch.autocast("cpu", torch.bfloat16)


CONTEXTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "float32": nullcontext,
    BFLOAT16: bfloat16_autocast,
}


def step(
    model: nn.Module,
    inputs: Inputs,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Run:
    """Return a step of training, within `autocast`."""
    autocast()  # absent where it cannot be

    def loss() -> torch.Tensor:
        with autocast():
            return model(**inputs).loss

    return measured_step(model, None, loss)


def step_of_adapter(model: PreTrainedModel, inputs: Inputs) -> Run:
    peft = library("peft")
    modules = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
    options = peft.LoraConfig(r=16, lora_dropout=0.0, target_modules=modules)
    adapted = peft.get_peft_model(model, options)
    with torch.no_grad():  # the second factor is zero at first, and the first one has no gradient
        for name, tensor in adapted.named_parameters():
            if "lora_" in name:
                generator = torch.Generator().manual_seed(tensor.numel())
                tensor.copy_(torch.randn(tensor.shape, generator=generator) / 50)
    return step(adapted, inputs)
