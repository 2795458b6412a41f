"""Proof of a conversion: both models compute the same logits for the same padded batch."""

from functools import partial

import torch

from hf_tformer.file_integrity import not_a_number

from .aliases import Batch, Fields, FilePath
from .errors import ConversionError
from .first_difference import first_difference, hidden_states
from .models import LoadedModel
from .registry import refuse_unreadable, side_of
from .translation import AnySide

# Relative to the largest logit. Equal models differ by rounding alone, which is far smaller.
TOLERANCE = 1e-4
LONGEST = 48  # enough for positions to matter
# A model to compare: the side that reads it, its path, and settings that it lacks.
Asked = tuple[AnySide, FilePath, Fields | None]


def verify(
    first: FilePath,
    second: FilePath,
    dtype: torch.dtype | None = None,
    settings: Fields | None = None,
) -> float:
    """Return the largest difference between the logits of two models in float32, or refuse it.

    `dtype` is the one that the second was rounded to; the first is rounded likewise. `settings` are
    values that a plain file among the two lacks.
    """
    for path in (first, second):
        refuse_unreadable(path)
    models = [(side_of(path), path) for path in (first, second)]
    known = {name for side, _ in models for name in getattr(side, "settings", ())}
    if unknown := sorted(set(settings or ()) - known):
        raise ConversionError(f"neither {first} nor {second} has a setting {', '.join(unknown)}")
    one, other = ((side, path, relevant(settings, side)) for side, path in models)
    return compare(one, other, dtype)


def relevant(settings: Fields | None, side: AnySide) -> Fields:
    """Return the settings of this side; a folder of a library needs none."""
    known = getattr(side, "settings", ())
    return {name: value for name, value in (settings or {}).items() if name in known}


def compare(first: Asked, second: Asked, dtype: torch.dtype | None = None) -> float:
    """Return the largest difference between the logits of two models, or refuse it."""
    loaded = load(first)
    round_weights(loaded, dtype)
    batch = padded_batch(loaded)
    expected, expected_as_stored = logits_of(loaded, batch, first[1])
    del loaded  # one model in memory at a time
    actual, actual_as_stored = logits_of(load(second), batch, second[1])
    if actual.shape != expected.shape:
        raise ConversionError(
            f"{first[1]} has {expected.shape[-1]} outputs for each sequence or token and "
            f"{second[1]} {actual.shape[-1]}: compare two formats of one model"
        )
    try:
        refuse_difference(expected, actual, getattr(first[0], "answers", "logits"))
    except ConversionError as error:
        place = where_they_part(first, second, dtype, batch)
        raise ConversionError(f"{error}{place}") from error
    return (actual_as_stored - expected_as_stored).abs().max().item()


def where_they_part(first: Asked, second: Asked, dtype: torch.dtype | None, batch: Batch) -> str:
    """Return the layer behind which two models differ first, as the end of an error, or ""."""
    loaded = load(first)
    round_weights(loaded, dtype)
    ours = hidden_states(loaded.model, partial(real_logits, loaded, batch), batch)
    del loaded  # one model in memory at a time
    loaded = load(second)
    theirs = hidden_states(loaded.model, partial(real_logits, loaded, batch), batch)
    return first_difference(ours, theirs, TOLERANCE / 10)


def logits_of(
    loaded: LoadedModel, batch: Batch, path: FilePath
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits with exact sinusoids, by which models are judged, and as it is stored."""
    exact = finite_logits(loaded, batch, path)
    if not loaded.rounded_tables:
        return exact, exact
    with torch.no_grad():
        for table, rounded in loaded.rounded_tables.items():
            table.copy_(rounded)
    return exact, finite_logits(loaded, batch, path)


def load(model: Asked) -> LoadedModel:
    side, path, settings = model
    return side.load(path, settings)


def refuse_difference(expected: torch.Tensor, actual: torch.Tensor, answers: str) -> None:
    difference = (actual - expected).abs().max().item()
    limit = TOLERANCE * max(1.0, expected.abs().max().item())
    if not difference <= limit:  # in this order, so that NaN is refused as well
        raise ConversionError(
            f"the {answers} differ by {difference:.1e}, more than rounding explains ({limit:.1e}): "
            "the two models do not compute the same"
        )


@torch.no_grad()
def round_weights(loaded: LoadedModel, dtype: torch.dtype | None) -> None:
    for tensor in loaded.weights if dtype is not None else ():
        tensor.copy_(tensor.to(dtype))


def padded_batch(loaded: LoadedModel, longest: int = LONGEST) -> Batch:
    """Return sequences of three lengths: models that agree without padding may differ beside it."""
    longest = min(longest, loaded.longest)
    lengths = torch.tensor([longest, max(1, longest * 2 // 3), max(1, longest // 3)])
    mask = (torch.arange(longest) < lengths[:, None]).long()
    mask = mask[: loaded.rows]
    if loaded.output_ids is not None:
        outputs = random_ids(loaded.output_ids, mask.flip(0), loaded.pad)
        if loaded.start is not None:  # which may be the padding id
            outputs[:, 0] = loaded.start
        return {
            "input_ids": random_ids(loaded.input_ids, mask, loaded.pad),
            "attention_mask": mask,
            "decoder_input_ids": outputs,  # a short source beside a long target
            "decoder_attention_mask": mask.flip(0),
        }
    if loaded.is_encoder:
        batch = {"input_ids": random_ids(loaded.input_ids, mask, loaded.pad)}
        if loaded.types > 1:
            batch["token_type_ids"] = random_ids(loaded.types, mask, None)
        return {**batch, "attention_mask": mask}
    mask = mask.flip(1)  # on the left, as for generation
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    inputs = random_ids(loaded.input_ids, mask, loaded.pad)
    return {"input_ids": inputs, "attention_mask": mask, "position_ids": positions}


def random_ids(vocab_size: int, mask: torch.Tensor, pad: int | None) -> torch.Tensor:
    """Return ids with the padding id at padding alone, by which some models find padding."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocab_size, mask.shape, generator=generator)
    if pad is None or vocab_size == 1:
        return ids
    return torch.where(ids == pad, (pad + 1) % vocab_size, ids).masked_fill(mask == 0, pad)


def finite_logits(loaded: LoadedModel, batch: Batch, path: FilePath) -> torch.Tensor:
    logits = real_logits(loaded, batch)
    if found := not_a_number(logits):
        weights = loaded.model.state_dict().items()
        damaged = [f"{name} holds {kind}" for name, w in weights if (kind := not_a_number(w))]
        raise ConversionError(
            f"the logits of {path} hold {found}, so nothing can be compared: "
            + (f"{damaged[0]} there" if damaged else "its finite weights overflow float32")
        )
    return logits


@torch.inference_mode()
def real_logits(loaded: LoadedModel, batch: Batch) -> torch.Tensor:
    """Return the logits at real tokens, without those at padding."""
    try:
        return loaded.ask(loaded.model, batch)
    except IndexError as error:
        raise ConversionError(
            f"a {type(loaded.model).__name__} has fewer ids than the other model: compare two "
            "formats of one model"
        ) from error
