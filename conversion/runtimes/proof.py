"""Proof of an export: the runtime itself gives the logits and writes the texts of our model.

Our model is asked first and let go; then the files are opened and asked the same.
"""

from dataclasses import dataclass, field
from functools import partial

import torch
from transformers import GenerationConfig, PreTrainedModel

from ..engine.errors import ConversionError
from ..engine.models import Reader
from ..engine.proof import finite_logits, padded_batch, random_ids, real_logits
from .runtime import Batch, Running, Runtime, Source, Texts

PROMPTS = (3, 9, 6)  # tokens; no export has seen these lengths
NEW = 24  # tokens that are written after each
EXACT = 1e-4  # of the largest logit: what rounding explains
OWN = 8  # times our own rounding: as much is allowed where that is more


@dataclass(frozen=True)
class Written:
    """Texts of our model, and by how much each token led the second best one (greedy alone)."""

    texts: Texts
    leads: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Answers:
    """What our model answers: logits of batches of several shapes, and what it writes."""

    batches: list[Batch]
    logits: list[torch.Tensor]
    rounding: float  # how far our own float32 is from float64
    imitated: list[torch.Tensor]  # the same logits where our model rounds like the runtime
    prompts: Texts
    written: dict[int, Written]  # by the number of beams
    new_tokens: int


@dataclass(frozen=True)
class Proof:
    """How near the logits are, the largest of them, and the texts that are equal, by beams."""

    difference: float | None
    largest: float | None
    equal_texts: dict[int, tuple[int, int]]  # number of beams → (equal, all)


def ask(source: Source, runtime: Runtime) -> Answers:
    """Our own answers to what the runtime can be asked."""
    reader = runtime.reader(source)
    batches = [begun(batch, reader.model) for batch in (padded_batch(reader), single_text(reader))]
    logits = [finite_logits(reader, batch, source.folder) for batch in batches]
    prompts = prompts_for(reader) if source.generates else []
    new_tokens = min(NEW, reader.longest - max(map(len, prompts), default=0))
    written = {n: write(reader.model, prompts, new_tokens, n) for n in runtime.beams if prompts}
    imitated = imitated_logits(reader, runtime, batches, logits)
    rounding = own_rounding(reader, batches, logits)  # last: it hooks into the model
    return Answers(batches, logits, rounding, imitated, prompts, written, new_tokens)


def imitated_logits(
    reader: Reader, runtime: Runtime, batches: list[Batch], logits: list[torch.Tensor]
) -> list[torch.Tensor]:
    """What our model says while it rounds like the runtime; `logits`, if it always does."""
    hooks = runtime.imitate(reader.model)
    if not hooks:
        return logits
    imitated = [real_logits(reader, batch) for batch in batches]
    for hook in hooks:
        hook.remove()
    return imitated


def own_rounding(reader: Reader, batches: list[Batch], logits: list[torch.Tensor]) -> float:
    """Weights that no training has tamed can make much of every rounding, ours and theirs."""
    widen_while_called(reader.model)
    exact = (real_logits(reader, batch) for batch in batches)
    return max((x - y).abs().max().item() for x, y in zip(exact, logits, strict=True))


def widen_while_called(model: PreTrainedModel) -> None:
    """To float64, one module at a time: all at once would take twice the weights once more."""
    for module in model.modules():
        own = [
            (tensors, name, tensor)
            for tensors in (module._parameters, module._buffers)
            for name, tensor in tensors.items()
            if tensor is not None and tensor.is_floating_point()
        ]
        module.register_forward_pre_hook(partial(hold_as, torch.float64, own))
        module.register_forward_hook(partial(hold_as, torch.float32, own))


def hold_as(dtype: torch.dtype, own: list[tuple], *_: object) -> None:
    """In float32 they are themselves again, ties and all: to() gives back what needs no change."""
    for tensors, name, tensor in own:
        tensors[name] = tensor.to(dtype)


def begun(batch: Batch, model: PreTrainedModel) -> Batch:
    """What a decoder has written begins with its start token: some runtimes put it there."""
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is not None and "decoder_input_ids" in batch:
        batch["decoder_input_ids"][:, 0] = start
    return batch


def single_text(reader: Reader) -> Batch:
    """One text of a length that no example of an export has."""
    longest = min(11, reader.longest)
    return {name: x[:1, -longest:] for name, x in padded_batch(reader, longest=longest).items()}


def prompts_for(reader: Reader) -> Texts:
    fitting = [min(length, max(1, reader.longest // 2)) for length in PROMPTS]
    mask = torch.ones(len(PROMPTS), max(fitting), dtype=torch.long)
    ids = random_ids(reader.input_ids, mask, reader.pad).tolist()
    return [row[:length] for row, length in zip(ids, fitting, strict=True)]


@torch.inference_mode()
def write(model: PreTrainedModel, prompts: Texts, new_tokens: int, num_beams: int) -> Written:
    """Row by row: some runtimes take no others, and a row in a batch is written as it is alone."""
    greedy = num_beams == 1
    habits = plain_habits(model, new_tokens, num_beams, output_scores=greedy)
    model.generation_config = habits  # generate() would fill in what the model is used to
    texts, leads = [], []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        done = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=habits,
        )
        # The start token of an encoder-decoder is no part of the text; nor is the prompt.
        skipped = 1 if model.config.is_encoder_decoder else len(prompt)
        texts.append(done.sequences[0, skipped:].tolist())
        best = [score[0].topk(2).values for score in done.scores or ()]
        leads.append([(first - second).item() for first, second in best])
    return Written(texts, leads)


def plain_habits(model: PreTrainedModel, new_tokens: int, num_beams: int, **more):
    """The model's special ids, and nothing else that it is used to."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    ids = {name: getattr(model.generation_config, name, None) for name in names}
    pad = model.config.pad_token_id
    return GenerationConfig(
        **{**ids, "pad_token_id": 0 if pad is None else pad},
        do_sample=False,
        num_beams=num_beams,
        early_stopping=num_beams > 1,
        max_new_tokens=new_tokens,
        return_dict_in_generate=True,
        **more,
    )


def prove(answers: Answers, running: Running, title: str, tolerance: float) -> Proof:
    """Asks the runtime the same; raises where its answers are not ours."""
    difference = largest = None
    ours = zip(answers.batches, answers.logits, answers.imitated, strict=True)
    for batch, expected, imitated in ours:
        actual = running.logits(batch)
        if actual is not None:
            size = expected.abs().max().item()
            limit = max(OWN * answers.rounding, tolerance * max(1.0, size))
            one = largest_difference(actual, (expected, imitated), title, limit)
            difference = max(difference or 0.0, one)
            largest = max(largest or 0.0, size)
    equal = {}
    for num_beams, written in answers.written.items():
        texts = running.continue_texts(answers.prompts, answers.new_tokens, num_beams)
        if texts is not None:
            margin = 2 * max(EXACT * max(1.0, largest or 0.0), OWN * answers.rounding)
            same = count_equal(texts, written, margin)
            if tolerance <= EXACT and same < len(texts):
                refuse_texts(texts, written.texts, title, num_beams)
            equal[num_beams] = same, len(texts)
    return Proof(difference, largest, equal)


def largest_difference(
    actual: torch.Tensor, ours: tuple[torch.Tensor, ...], title: str, limit: float
) -> float:
    """Between the answers and the first of ours; raises where they are near none of them."""
    if actual.shape != ours[0].shape:
        raise ConversionError(
            f"{title} answers with {list(actual.shape)} numbers where the model has "
            f"{list(ours[0].shape)}: please report this configuration"
        )
    differences = [(actual.float() - expected).abs().max().item() for expected in ours]
    if not any(difference <= limit for difference in differences):  # nor is what is not a number
        raise ConversionError(
            f"the answers of {title} differ by {min(differences):.1e}, more than rounding explains "
            f"({limit:.1e}): nothing is kept; please report this configuration"
        )
    return differences[0]


def count_equal(texts: Texts, written: Written, margin: float) -> int:
    """How many texts are ours; where two tokens score alike, either may be written."""
    count = 0
    for i, (text, expected) in enumerate(zip(texts, written.texts, strict=True)):
        pairs = zip(text, expected, strict=False)
        place = next((at for at, (x, y) in enumerate(pairs) if x != y), None)
        if place is None:
            count += len(text) == len(expected)
        else:
            count += bool(written.leads[i]) and written.leads[i][place] <= margin
    return count


def refuse_texts(texts: Texts, expected: Texts, title: str, num_beams: int) -> None:
    way = "greedily" if num_beams == 1 else f"with {num_beams} beams"
    row = next(i for i, pair in enumerate(zip(texts, expected, strict=True)) if pair[0] != pair[1])
    raise ConversionError(
        f"{title} writes other tokens than generate(), {way}: {texts[row][:8]}... where the model "
        f"writes {expected[row][:8]}...: nothing is kept; please report this configuration"
    )
