"""What a file computes: logits at several lengths, and greedy continuations."""

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from ..engine.aliases import Batch
from ..engine.errors import ConversionError
from ..engine.models import WRONG_VALUES, LoadedModel
from ..engine.proof import real_logits
from ..engine.side_files import first_line
from ..runtimes.proof import (
    EXACT,
    NEW,
    OWN,
    Generated,
    count_equal,
    generate,
    measure_few_bits,
    own_rounding,
    prompts_for,
)
from ..runtimes.runtime import Sequences
from .answer import DIFFERS, NEAR, SAME, Answer, counted, unasked
from .causes import explain
from .opened import Opened
from .texts import BEGINNINGS

Given = TypeVar("Given")
LENGTHS = (1, 11, 48)
BEYOND = 9  # tokens past a limit
MOST_NUMBERS = 2**26  # of the logits of one sequence
OF_FEW_BITS = 3  # times what so few bits lose in the model are few bits, too
LEAST = 1e-3  # nats that are always allowed
GROUP = 32  # weights that share a step where they have less than eight bits
LOGITS, GREEDY = "logits", "greedy text"


def ask_logits(opened: Opened) -> Answer:
    """Compare logits with those of the model that the file has the weights of."""
    loaded = opened.start
    lengths, left_out = lengths_for(opened)
    worst, largest, batch, actual = 0.0, 0.0, Batch(), torch.empty(0)
    for length in lengths:
        asked = batch_of(opened, length)
        expected, found = (
            real_logits(loaded, asked),
            answered(partial(opened.running.logits, asked)),
        )
        if found is None:
            return unasked(LOGITS, f"{opened.title} returns none")
        if loaded.pad == expected.shape[-1] - 1 == found.shape[-1]:
            # CTranslate2 leaves the padding token out: it is not compared.
            found = torch.cat([found.float(), expected[..., -1:]], dim=-1)
        if expected.shape != found.shape:
            return Answer(LOGITS, DIFFERS, shapes(expected, found), "its head is another one")
        size = max(1.0, expected.abs().max().item())
        difference = (expected - found.float()).abs().max().item()
        if not difference / size <= worst:  # NaN is worst
            worst, largest, batch, actual = difference / size, difference, asked, found
    seen = f"{largest:.1e} at most, for {', '.join(map(str, lengths))} tokens{left_out}"
    if worst <= opened.tolerance:
        return Answer(LOGITS, SAME, seen)
    return judged(opened, seen, loaded, batch, actual)


def answered(ask: Callable[[], Given]) -> Given:
    """Return what a file answers, its errors in one sentence."""
    try:
        return ask()
    except Exception as error:  # runtimes fail in many ways
        raise ConversionError(first_line(error)) from error


def judged(
    opened: Opened, seen: str, loaded: LoadedModel, batch: Batch, actual: torch.Tensor
) -> Answer:
    """Judge logits that differ by more than rounding of the usual size."""
    expected = real_logits(loaded, batch)
    if opened.bits and expected.ndim == 2:
        few = measure_few_bits(actual.float(), expected)
        seen = f"{seen}; {few.divergence:.1e} nats from the model's"
        if few.divergence <= max(LEAST, OF_FEW_BITS * loss_of_few_bits(opened, batch)):
            return Answer(LOGITS, NEAR, f"{seen}: alike, as few bits are")
    elif (limit := OWN * own_rounding_of(opened, loaded, batch, expected)) >= (
        difference := (actual.float() - expected).abs().max().item()
    ):
        return Answer(LOGITS, SAME, f"{seen}; {difference:.1e} are rounding ({limit:.1e})")
    cause = explain(opened.model, batch, actual, loaded)
    return Answer(LOGITS, DIFFERS, seen, cause or unexplained(actual))


def loss_of_few_bits(opened: Opened, batch: Batch) -> float:
    """Return the divergence of the model with so few bits in weights, and eight in inputs."""
    bits = opened.bits or 8
    copy = opened.model.changed({}, opened.model.state)
    for module in copy.model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(rounded_to(bits, module.weight.detach()), False)
            module.register_forward_pre_hook(lambda _, inputs: rounded_to(8, inputs[0]))
    expected = real_logits(opened.model.loaded, batch)
    return measure_few_bits(real_logits(copy, batch), expected).divergence


def rounded_to(bits: int, numbers: torch.Tensor) -> torch.Tensor:
    """Round numbers to steps of one size in each row, or in each group of a row."""
    size = numbers.shape[-1]
    groups = numbers.unflatten(-1, (-1, GROUP)) if bits < 8 and size % GROUP == 0 else numbers
    step = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / (2 ** (bits - 1) - 1)
    return ((groups / step).round() * step).view_as(numbers)


def own_rounding_of(
    opened: Opened, loaded: LoadedModel, batch: Batch, expected: torch.Tensor
) -> float:
    """Return our difference from float64, of a copy: the hooks of `own_rounding` stay."""
    copy = opened.model.changed({}, loaded.model.state_dict())
    return own_rounding(copy, [batch], [expected])


def unexplained(actual: torch.Tensor) -> str:
    if not actual.isfinite().all():
        return "it computes numbers that are not finite"
    return "none of the usual faults explains it"


def shapes(expected: torch.Tensor, found: torch.Tensor) -> str:
    return f"{list(found.shape)} numbers there, and {list(expected.shape)} here"


def lengths_for(opened: Opened) -> tuple[list[int], str]:
    """Return the lengths to ask, beyond a window and an original length, and what is left out."""
    loaded, config = opened.model.loaded, opened.model.config
    rope = getattr(config, "rope_parameters", None) or {}
    scaled = [rope, *(one for one in rope.values() if isinstance(one, dict))]
    limits = [one.get("original_max_position_embeddings") for one in scaled]
    limits.append(getattr(config, "sliding_window", None))
    beyond = sorted({limit + BEYOND for limit in limits if isinstance(limit, int)})
    most = min(loaded.longest, MOST_NUMBERS // (loaded.output_ids or loaded.input_ids))
    if config.is_encoder_decoder:
        beyond = []
    fitting = [length for length in beyond if length <= most]
    left_out = "".join(f"; not beyond {x - BEYOND:,}" for x in beyond if x > most)
    return sorted({min(length, loaded.longest) for length in LENGTHS} | {*fitting}), left_out


def batch_of(opened: Opened, length: int) -> Batch:
    """Return a batch with padding, or one long sequence."""
    batch = opened.model.batch(length)
    if opened.model.config.is_encoder_decoder or length <= max(LENGTHS):
        return batch
    return {name: tensor[:1] for name, tensor in batch.items()}


def ask_greedy(opened: Opened) -> Answer:
    """Compare greedy continuations, up to tokens whose scores tie."""
    model, loaded = opened.model, opened.start
    if model.library.is_encoder:
        return unasked(GREEDY, "the model does not generate")
    prompts = beginnings(opened)
    new_tokens = min(NEW, loaded.longest - max(map(len, prompts)))
    try:
        expected = generate(loaded.model, prompts, new_tokens, 1)
    except (IndexError, RuntimeError, *WRONG_VALUES) as error:
        return unasked(GREEDY, f"the model itself cannot ({first_line(error)})")
    found = answered(partial(opened.running.generate, prompts, new_tokens, 1))
    if found is None:
        return unasked(GREEDY, f"{opened.title} does not search greedily")
    same = count_equal(found, expected, margin_of(expected))
    seen = f"{same} of {counted(len(prompts), 'continuation')} are equal"
    if same == len(prompts):
        return Answer(GREEDY, SAME, f"{seen}, {new_tokens} tokens each")
    seen += changed_tokens(opened, found, expected.sequences)
    if opened.bits:
        return Answer(GREEDY, NEAR, f"{seen}: few bits choose another token now and then")
    return Answer(GREEDY, DIFFERS, seen, "the differences above change the text")


def margin_of(expected: Generated) -> float:
    leads = [lead for leads in expected.leads for lead in leads if math.isfinite(lead)]
    return 2 * EXACT * max([1.0, *leads])


def beginnings(opened: Opened) -> Sequences:
    tokenizer, loaded = opened.model.tokenizer, opened.model.loaded
    if tokenizer is None:
        return prompts_for(loaded)
    ids = [list(tokenizer(text)["input_ids"]) for text in BEGINNINGS]
    fit = all(0 < len(one) <= loaded.longest // 2 and max(one) < loaded.input_ids for one in ids)
    return ids if fit else prompts_for(loaded)


def changed_tokens(opened: Opened, found: Sequences, expected: Sequences) -> str:
    there, here = next(pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1])
    tokenizer = opened.model.tokenizer
    shown = [ids[:8] if tokenizer is None else tokenizer.decode(ids[:12]) for ids in (there, here)]
    return f"; {shown[0]!r} there, and {shown[1]!r} here"
