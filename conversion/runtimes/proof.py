"""Proof of an export: the runtime has the logits of our model and generates the same tokens.

Our model runs first and is released; then the files are opened and run on the same inputs.
"""

from dataclasses import dataclass, field, replace
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
USUAL = 0.99  # of the differences count where weights are rounded
MOST_DIVERGENCE = 0.1  # nats; eight bits of a trained model have a tenth, another model several


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
class FewBits:
    """How near logits of rounded weights are: one maximum among thousands says little of them."""

    usual: float  # 99 of 100 differences are smaller
    divergence: float  # mean Kullback-Leibler divergence of the next token, in nats
    same_best: float  # share of tokens whose best successor is the same one


@dataclass(frozen=True)
class Proof:
    """The difference of the logits, the largest one, and how many outputs are equal, by beams.

    `few_bits` describes a file whose weights are rounded, `changed` its first output that differs:
    the tokens of ours and of the runtime. With `is_packed` the weights were packed after the rest.
    """

    difference: float | None
    largest: float | None
    equal_texts: dict[int, tuple[int, int]]  # number of beams → (equal, all)
    few_bits: FewBits | None = None
    changed: tuple[list[int], list[int]] | None = None
    is_packed: bool = False


def ask(source: Source, runtime: Runtime) -> Answers:
    """Return the outputs of our model for inputs that the runtime supports."""
    loaded = runtime.load_model(source)
    batches = [padded_batch(loaded), single_sequence(loaded)]
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
    if model._supports_sdpa:  # with which our models generate several times as fast
        model.set_attn_implementation("sdpa")
    greedy = num_beams == 1
    config = plain_generation_config(model, new_tokens, num_beams, output_scores=greedy)
    model.generation_config = config  # from which generate() fills in what is not set
    sequences, leads = [], []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        done = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
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


def prove(answers: Answers, running: Running, runtime: Runtime, source: Source) -> Proof:
    """Run the runtime on the same inputs and refuse outputs that differ from ours."""
    title, tolerance = runtime.title, runtime.tolerance_for(source)
    advice = runtime.advice(source.dtype)
    difference = largest = few_bits = changed = None
    ours = zip(answers.batches, answers.logits, answers.imitated, strict=True)
    for batch, expected, imitated in ours:
        actual = running.logits(batch)
        if actual is not None:
            size = expected.abs().max().item()
            limit = max(OWN * answers.rounding, tolerance * max(1.0, size))
            if tolerance > EXACT and expected.ndim == 2 and actual.shape == expected.shape:
                few_bits = measure_few_bits(actual.float(), expected)
            one = largest_difference(actual, (expected, imitated), title, limit, advice, few_bits)
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
            changed = changed or first_changed(sequences, expected_output.sequences)
            equal[num_beams] = same, len(sequences)
    return Proof(difference, largest, equal, few_bits, changed)


def with_few_bits(proof: Proof, answers: Answers, packed: Running) -> Proof:
    """Add how near the answers are once the weights of what was proven are packed."""
    actual = packed.logits(answers.batches[0])
    few_bits = None if actual is None else measure_few_bits(actual.float(), answers.logits[0])
    return replace(proof, few_bits=few_bits, is_packed=True)


def measure_few_bits(actual: torch.Tensor, expected: torch.Tensor) -> FewBits:
    """Compare the logits [tokens, vocabulary] of rounded weights with ours."""
    differences = (actual - expected).abs().flatten().sort().values
    usual = differences[int(USUAL * (len(differences) - 1))].item()
    ours, theirs = expected.log_softmax(-1), actual.log_softmax(-1)
    divergence = (ours.exp() * (ours - theirs)).sum(-1).mean().item()
    same_best = (ours.argmax(-1) == theirs.argmax(-1)).float().mean().item()
    return FewBits(usual, divergence, same_best)


def first_place(one: str | list[int], other: str | list[int]) -> int:
    """Return the first place at which two texts or sequences differ, or the shorter one ends."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(one), len(other)))


def first_changed(actual: Sequences, expected: Sequences) -> tuple[list[int], list[int]] | None:
    pairs = ((ours, theirs) for theirs, ours in zip(actual, expected, strict=True))
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def largest_difference(
    actual: torch.Tensor,
    ours: tuple[torch.Tensor, ...],
    title: str,
    limit: float,
    advice: str,
    few_bits: FewBits | None = None,
) -> float:
    """Return the difference from the first of ours; refuse outputs that are near none of them.

    Rounded weights may miss a rare token by more, where all others and the distribution are near.
    """
    if actual.shape != ours[0].shape:
        raise ConversionError(
            f"{title} returns {list(actual.shape)} numbers where the model has "
            f"{list(ours[0].shape)}: please report this configuration"
        )
    differences = [(actual.float() - expected).abs().max().item() for expected in ours]
    is_near = any(difference <= limit for difference in differences)  # NaN is not
    if not is_near and few_bits is not None:
        is_near = few_bits.usual <= limit and few_bits.divergence <= MOST_DIVERGENCE
    if not is_near:
        raise ConversionError(
            f"the outputs of {title} differ by {min(differences):.1e}, more than rounding explains "
            f"({limit:.1e}): nothing is kept; {advice}"
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
