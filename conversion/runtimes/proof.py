"""Proof of an export: the runtime has the logits of our model and generates the same tokens.

Our model runs first and is released; then the files are opened and run on the same inputs.
"""

from dataclasses import dataclass, field
from functools import partial

import torch
from transformers import GenerationConfig, PreTrainedModel

from ..engine.aliases import Batch
from ..engine.errors import ConversionError
from ..engine.models import LoadedModel
from ..engine.proof import finite_logits, padded_batch, random_ids, real_logits
from .runtime import Running, Runtime, Sequences, Source

# A dictionary of a module, the name of a tensor in it, and the tensor.
Owned = tuple[dict[str, torch.Tensor | None], str, torch.Tensor]
PROMPTS = (3, 9, 6)  # tokens; no export has seen these lengths
NEW = 24  # tokens that are generated after each
EXACT = 1e-4  # of the largest logit: what rounding explains
OWN = 8  # times our own rounding are allowed, if that is more


@dataclass(frozen=True)
class Generated:
    """Outputs of our model, and the lead of each token over the second best (greedy search)."""

    sequences: Sequences
    leads: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Answers:
    """The outputs of our model: logits of batches of several shapes, and generated sequences."""

    batches: list[Batch]
    logits: list[torch.Tensor]
    rounding: float  # the difference of our own float32 from float64
    imitated: list[torch.Tensor]  # logits of our model with the runtime's rounding
    prompts: Sequences
    generated: dict[int, Generated]  # by the number of beams
    new_tokens: int


@dataclass(frozen=True)
class Proof:
    """The difference of the logits, the largest one, and how many outputs are equal, by beams."""

    difference: float | None
    largest: float | None
    equal_texts: dict[int, tuple[int, int]]  # number of beams → (equal, all)


def ask(source: Source, runtime: Runtime) -> Answers:
    """Return the outputs of our model for inputs that the runtime supports."""
    loaded = runtime.load_model(source)
    batches = [
        with_start(batch, loaded.model) for batch in (padded_batch(loaded), single_sequence(loaded))
    ]
    logits = [finite_logits(loaded, batch, source.folder) for batch in batches]
    prompts = prompts_for(loaded) if source.generates else []
    new_tokens = min(NEW, loaded.longest - max(map(len, prompts), default=0))
    beams = runtime.beams if prompts else ()
    generated = {n: generate(loaded.model, prompts, new_tokens, n) for n in beams}
    imitated = imitated_logits(loaded, runtime, batches, logits)
    rounding = own_rounding(loaded, batches, logits)  # last: it hooks into the model
    return Answers(batches, logits, rounding, imitated, prompts, generated, new_tokens)


def imitated_logits(
    loaded: LoadedModel, runtime: Runtime, batches: list[Batch], logits: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Return logits of our model with the runtime's rounding, `logits` if that is torch's."""
    hooks = runtime.imitate(loaded.model)
    if not hooks:
        return logits
    imitated = [real_logits(loaded, batch) for batch in batches]
    for hook in hooks:
        hook.remove()
    return imitated


def own_rounding(loaded: LoadedModel, batches: list[Batch], logits: list[torch.Tensor]) -> float:
    """Return our difference from float64: untrained weights can amplify any rounding."""
    widen_while_called(loaded.model)
    exact = (real_logits(loaded, batch) for batch in batches)
    return max((x - y).abs().max().item() for x, y in zip(exact, logits, strict=True))


def widen_while_called(model: PreTrainedModel) -> None:
    """Compute in float64, one module at a time: all at once would take twice the memory more."""
    for module in model.modules():
        own = [
            (tensors, name, tensor)
            for tensors in (module._parameters, module._buffers)
            for name, tensor in tensors.items()
            if tensor is not None and tensor.is_floating_point()
        ]
        module.register_forward_pre_hook(partial(cast, torch.float64, own))
        module.register_forward_hook(partial(cast, torch.float32, own))


def cast(dtype: torch.dtype, own: list[Owned], *_: object) -> None:
    """Hold tensors in a dtype; in float32 they are the original, tied ones."""
    for tensors, name, tensor in own:
        tensors[name] = tensor.to(dtype)


def with_start(batch: Batch, model: PreTrainedModel) -> Batch:
    """Set the first decoder token to the start token, which some runtimes add themselves."""
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is not None and "decoder_input_ids" in batch:
        batch["decoder_input_ids"][:, 0] = start
    return batch


def single_sequence(loaded: LoadedModel) -> Batch:
    """Return one sequence of a length that no example of an export has."""
    longest = min(11, loaded.longest)
    return {name: x[:1, -longest:] for name, x in padded_batch(loaded, longest=longest).items()}


def prompts_for(loaded: LoadedModel) -> Sequences:
    fitting = [min(length, max(1, loaded.longest // 2)) for length in PROMPTS]
    mask = torch.ones(len(PROMPTS), max(fitting), dtype=torch.long)
    ids = random_ids(loaded.input_ids, mask, loaded.pad).tolist()
    return [prompt[:length] for prompt, length in zip(ids, fitting, strict=True)]


@torch.inference_mode()
def generate(
    model: PreTrainedModel, prompts: Sequences, new_tokens: int, num_beams: int
) -> Generated:
    """Generate one sequence at a time, as some runtimes support no batches."""
    greedy = num_beams == 1
    config = plain_generation_config(model, new_tokens, num_beams, output_scores=greedy)
    model.generation_config = config  # from which generate() fills in what is not set
    sequences, leads = [], []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        done = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=config,
        )
        # Neither the start token of an encoder-decoder nor the prompt is output.
        skipped = 1 if model.config.is_encoder_decoder else len(prompt)
        sequences.append(done.sequences[0, skipped:].tolist())
        best = [score[0].topk(2).values for score in done.scores or ()]
        leads.append([(first - second).item() for first, second in best])
    return Generated(sequences, leads)


def plain_generation_config(
    model: PreTrainedModel, new_tokens: int, num_beams: int, **more: object
) -> GenerationConfig:
    """Return generation settings with the model's special ids and nothing else of its own."""
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
    """Run the runtime on the same inputs and refuse outputs that differ from ours."""
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
    for num_beams, expected_output in answers.generated.items():
        sequences = running.generate(answers.prompts, answers.new_tokens, num_beams)
        if sequences is not None:
            margin = 2 * max(EXACT * max(1.0, largest or 0.0), OWN * answers.rounding)
            same = count_equal(sequences, expected_output, margin)
            if tolerance <= EXACT and same < len(sequences):
                refuse_sequences(sequences, expected_output.sequences, title, num_beams)
            equal[num_beams] = same, len(sequences)
    return Proof(difference, largest, equal)


def largest_difference(
    actual: torch.Tensor, ours: tuple[torch.Tensor, ...], title: str, limit: float
) -> float:
    """Return the difference from the first of ours; refuse outputs that are near none of them."""
    if actual.shape != ours[0].shape:
        raise ConversionError(
            f"{title} returns {list(actual.shape)} numbers where the model has "
            f"{list(ours[0].shape)}: please report this configuration"
        )
    differences = [(actual.float() - expected).abs().max().item() for expected in ours]
    if not any(difference <= limit for difference in differences):  # NaN is refused as well
        raise ConversionError(
            f"the outputs of {title} differ by {min(differences):.1e}, more than rounding explains "
            f"({limit:.1e}): nothing is kept; please report this configuration"
        )
    return differences[0]


def count_equal(sequences: Sequences, generated: Generated, margin: float) -> int:
    """Return how many sequences equal ours, up to tokens whose scores tie."""
    count = 0
    for i, (sequence, expected) in enumerate(zip(sequences, generated.sequences, strict=True)):
        pairs = zip(sequence, expected, strict=False)
        place = next((at for at, (x, y) in enumerate(pairs) if x != y), None)
        if place is None:
            count += len(sequence) == len(expected)
        else:
            count += bool(generated.leads[i]) and generated.leads[i][place] <= margin
    return count


def refuse_sequences(actual: Sequences, expected: Sequences, title: str, num_beams: int) -> None:
    way = "greedily" if num_beams == 1 else f"with {num_beams} beams"
    first, ours = next(pair for pair in zip(actual, expected, strict=True) if pair[0] != pair[1])
    raise ConversionError(
        f"{title} generates other tokens than generate(), {way}: {first[:8]}... where the model "
        f"generates {ours[:8]}...: nothing is kept; please report this configuration"
    )
