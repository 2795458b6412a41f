"""Models and batches of a case, the plain paths, and when two answers are the same."""

import logging
import warnings
from contextlib import ExitStack, contextmanager

import pytest
import torch
from transformers import StaticCache
from transformers.cache_utils import EncoderDecoderCache
from transformers.utils.logging import disable_progress_bar

from hf_tformer import fast
from hf_tformer.testing import simulated_flash
from support.families import FAMILIES, pad
from support.parity import randomise

from .cases import DECODERS

by_name = {family.name: family for family in FAMILIES}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Of the largest value. Where float32 is right, float64 shows whether it is right by accident.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9}


@contextmanager
def quiet():
    """Kernels simulated, and no word of transformers about odd options: they are odd on purpose."""
    disable_progress_bar()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        level = logging.getLogger("transformers").level
        logging.getLogger("transformers").setLevel(logging.CRITICAL)
        stack.callback(logging.getLogger("transformers").setLevel, level)
        simulated_flash.install(stack.enter_context(pytest.MonkeyPatch.context()))
        # What flex attention compiles to takes a minute; uncompiled it computes the same.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def plain():
    """Everything takes the path that it takes where the package is not installed."""
    return fast.disabled()


def build(case, backend=None, dtype=None):
    family = by_name[case.family]
    model = family.model_class(family.config_class(**case.config))
    constants = {name: buffer.clone() for name, buffer in model.named_buffers()}
    randomise(model, case.seed)
    for name, buffer in model.named_buffers():  # an activation's own constants stay as they are
        buffer.requires_grad_(False).copy_(constants[name])
    model = model.eval().to(dtype or DTYPES[case.dtype])
    model.config._attn_implementation = backend or case.backend
    if case.family == "mixture":  # no other implementation takes every size, and float64
        model.set_experts_implementation("eager")
    return model


def random_texts(lengths, vocab_size, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocab_size, (n,), generator=generator).tolist() for n in lengths]


def texts(case):
    """The texts, or sources and targets."""
    sizes = [case.config["vocab_size"]]
    if case.family == "seq2seq":
        sizes.insert(0, case.config.get("source_vocab_size") or sizes[0])
    lengths = [case.lengths, case.targets]
    return [random_texts(*each, case.seed + 1) for each in zip(lengths, sizes, strict=False)]


def as_batch(case, *parts, sides=None):
    """Arguments of a forward pass, and which logits are of real tokens."""
    sides = sides or (case.side, case.target_side)
    batch = {}
    for prefix, rows, side in zip(("", "decoder_"), parts, sides, strict=False):
        batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"] = pad(rows, side)
    real = list(batch.values())[-1].bool()
    if case.types:
        batch["token_type_ids"] = batch["input_ids"] % case.config["type_vocab_size"]
    return batch, real


def embedded(model, case, batch):
    """The same batch, given by the embeddings of its tokens where the case says so."""
    if not case.embedded:
        return batch
    embeddings = model.get_input_embeddings()(batch["input_ids"])
    return {n: v for n, v in batch.items() if n != "input_ids"} | {"inputs_embeds": embeddings}


def prompts(case, *parts):
    """Arguments of generate: what a decoder continues; what an encoder-decoder answers, and how it
    is to begin, if it is told."""
    sources, *targets = parts
    start = case.config.get("decoder_start_token_id", 1)
    begun = [[[start, *row] for row in rows] for rows in targets if case.begun]
    sides = ("left" if case.family in DECODERS else case.side, "left")
    return as_batch(case, sources, *begun, sides=sides)[0]


def new_cache(model, case, length):
    if case.cache == "dynamic":
        return None
    if case.family in DECODERS:
        return StaticCache(config=model.config, max_cache_len=length)
    config = model.config.get_text_config(decoder=True)
    source = StaticCache(config=config, max_cache_len=max(case.lengths))
    return EncoderDecoderCache(StaticCache(config=config, max_cache_len=length), source)


def read_in_chunks(model, case, batch):
    """The logits of a batch that is read beside a cache, the last chunk as long as it has to be."""
    prefix = "decoder_" if case.family == "seq2seq" else ""
    ids, mask = batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"]
    given = {}
    if case.family == "seq2seq":
        source = {name: batch[name] for name in ("input_ids", "attention_mask")}
        given["encoder_outputs"] = model.get_encoder()(**source)
        given["attention_mask"] = batch["attention_mask"]
    logits, start, cache = [], 0, new_cache(model, case, ids.shape[1] + 2)
    for length in [*case.chunks, ids.shape[1]]:
        end = min(start + length, ids.shape[1])
        if start == end:
            break
        given |= {f"{prefix}input_ids": ids[:, start:end], f"{prefix}attention_mask": mask[:, :end]}
        output = model(**given, past_key_values=cache, use_cache=True)
        logits.append(output.logits)
        start, cache = end, output.past_key_values
        if case.reweighted:
            reweight(model)
        if case.cropped and end < ids.shape[1]:  # read again what was read last
            cache.crop(-1)
            start, logits[-1] = end - 1, logits[-1][:, :-1]
    return torch.cat(logits, dim=1)


@torch.no_grad()
def reweight(model):
    """Other weights in the place of the ones that a step has read."""
    model.load_state_dict({name: 1.1 * value for name, value in model.state_dict().items()})


class PromiseError(AssertionError):
    """What was promised is not so."""


def check_same(actual, expected, what):
    """Equal but for rounding; both may overflow in the same place, and neither is let off NaN."""
    if actual.shape != expected.shape:
        raise PromiseError(f"{what}: shapes {list(actual.shape)} and {list(expected.shape)}")
    if not torch.isfinite(expected).all():
        raise PromiseError(f"{what}: what was expected is not finite")
    if not actual.numel():
        return
    difference = (actual - expected).abs().max() / expected.abs().max().clamp(min=1)
    if not difference <= TOLERANCE[expected.dtype]:
        raise PromiseError(f"{what}: they differ by {difference:.1e} of the largest")
