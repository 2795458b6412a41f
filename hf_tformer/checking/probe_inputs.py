"""Make inputs for a model, ask it, compare its answers: in the fresh process of `check` (probe.py).

Ids are random and no special ids; a sequence is longer than a short attention window, and not
longer than the positions that config.json allows. Images and waves are noise of the sizes that
config.json gives. What can be guessed for no model, such as a second required input, skips.
"""

import inspect
import math
from collections.abc import Mapping

import torch
from probe_errors import Fault, Skip, explained
from transformers import PretrainedConfig, PreTrainedModel

Answers = dict[str, torch.Tensor]
MEDIA = ("pixel_values", "input_values", "input_features")
FIRST = ("logits", "start_logits", "last_hidden_state")  # what is named first if it differs
GENERATING = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM")
TOLERANCE = 1e-4  # of the scale of the answers
LONGEST = 256  # tokens, to reach the end of an attention window
SPECIAL = ("pad", "bos", "eos", "decoder_start")
# Errors that the values of an input do not cause.
OF_CODE = (AttributeError, NameError, TypeError, KeyError, AssertionError, ImportError)


def parameters_of(model: PreTrainedModel) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters


def takes(model: PreTrainedModel, *names: str) -> bool:
    return set(names) <= set(parameters_of(model))


def may_take(model: PreTrainedModel, name: str) -> bool:
    """Return whether forward names a parameter, or hands on all that it is given."""
    kinds = {parameter.kind for parameter in parameters_of(model).values()}
    return takes(model, name) or inspect.Parameter.VAR_KEYWORD in kinds


def has_decoder(model: PreTrainedModel) -> bool:
    """Return whether it has a decoder input: an encoder-decoder may be opened without one."""
    return model.config.is_encoder_decoder and takes(model, "decoder_input_ids")


def kind_of(model: PreTrainedModel, autos: dict) -> str:
    """Return the kind of a model: "encoder-decoder", "decoder" or "encoder"."""
    if has_decoder(model):
        return "encoder-decoder"
    if "AutoModelForMaskedLM" in autos:
        return "encoder"
    return "decoder" if model.can_generate() or "AutoModelForCausalLM" in autos else "encoder"


def text_config(model: PreTrainedModel) -> PretrainedConfig:
    return model.config.get_text_config(decoder=True)


def special_ids(model: PreTrainedModel) -> set[int]:
    values = [getattr(model.config, f"{name}_token_id", None) for name in SPECIAL]
    several = [value if isinstance(value, list) else [value] for value in values]
    return {one for ids in several for one in ids if isinstance(one, int)}


def pad_id(model: PreTrainedModel) -> int:
    value = getattr(model.config, "pad_token_id", None)
    return value if isinstance(value, int) and 0 <= value < vocabulary(model) else 0


def vocabulary(model: PreTrainedModel) -> int:
    try:
        size = len(model.get_input_embeddings().weight)
    except NotImplementedError:  # transformers finds them by their usual names only
        size = text_config(model).vocab_size
    if model.config.is_encoder_decoder:  # the same ids serve as source and as target
        size = min(size, getattr(model.config, "vocab_size", size))
    return size


def longest(model: PreTrainedModel) -> int:
    """Return the length of the sequences to ask, which a window, where it is short, ends before."""
    config = text_config(model)
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    wanted = max([7, *(w + 4 for w in windows if isinstance(w, int) and 0 < w < LONGEST)])
    room = getattr(config, "max_position_embeddings", None)
    if not isinstance(room, int) or room < 1:
        return wanted
    if room < 4:
        raise Skip(f"max_position_embeddings is {room}: too short a sequence to compare")
    return min(wanted, room - 2 if room < 12 else room - 5)  # some models begin to count at 2


def random_ids(model: PreTrainedModel, length: int, seed: int = 0) -> torch.Tensor:
    """Return ids [1, length] without special tokens."""
    if type(model).__name__.endswith("ForMultipleChoice"):
        raise Skip("it takes several sequences for each row, which this check does not make")
    if model.main_input_name != "input_ids":
        raise Skip(f"its main input is {model.main_input_name}, not input_ids")
    size, special = vocabulary(model), special_ids(model)
    ordinary = [i for i in range(min(size, 1000)) if i not in special]
    if len(ordinary) < 2:
        raise Skip(f"its vocabulary of {size} has no two ordinary tokens")
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(ordinary)[torch.randint(len(ordinary), (1, length), generator=generator)]


def main_inputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return one row of the main input: ids, or noise of the size that config.json gives."""
    name, config = model.main_input_name, model.config
    if name not in MEDIA:
        return {"input_ids": random_ids(model, longest(model))}
    vision, mels = getattr(config, "vision_config", config), getattr(config, "num_mel_bins", None)
    size = getattr(vision, "image_size", None)
    sizes = list(size.values()) if isinstance(size, dict) else size
    if name == "pixel_values" and sizes:
        height, width = sizes if isinstance(sizes, (list, tuple)) else (sizes, sizes)
        channels = getattr(vision, "num_channels", getattr(vision, "in_channels", 3))
        shape = [channels, height, width]
    elif name == "input_values" and not mels:
        shape = [8000]  # half a second
    elif name == "input_features" and mels and hasattr(config, "max_source_positions"):
        shape = [mels, 2 * config.max_source_positions]
    else:
        raise Skip(f"forward was not run: config.json does not say how large its {name} are")
    return {name: torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))}


def with_target(model: PreTrainedModel, inputs: Answers) -> Answers:
    """Add the input of a decoder beside an encoder."""
    first = next(iter(inputs.values()))
    if not has_decoder(model) or "decoder_input_ids" in inputs:
        return inputs
    target = torch.ones(1, 5, dtype=torch.int64)
    if "input_ids" in inputs:
        target = random_ids(model, 5, seed=2)
    return {**inputs, "decoder_input_ids": target.expand(len(first), -1).to(first.device)}


def completed(model: PreTrainedModel, inputs: Answers) -> Answers:
    """Add what forward requires and what has one plain value; skip if it requires more."""
    first = next(iter(inputs.values()))
    plain = {
        "attention_mask": torch.ones(first.shape[:2], dtype=torch.int64),
        "position_ids": torch.arange(first.shape[1])[None].expand(len(first), -1),
        "token_type_ids": torch.zeros(first.shape[:2], dtype=torch.int64),
    }
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in parameters_of(model).items():
        if parameter.default is not parameter.empty or parameter.kind in several or name in inputs:
            continue
        if name not in plain:
            raise Skip(f"forward requires {name}, which this check cannot make up")
        inputs = {**inputs, name: plain[name].to(first.device)}
    return inputs


@torch.no_grad()
def ask(model: PreTrainedModel, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return every answer in numbers that has an element for each row, by its name."""
    rows = len(next(iter(inputs.values())))
    output = model(**completed(model, with_target(model, inputs)))
    if isinstance(output, torch.Tensor):
        output = {"the answer": output}
    elif isinstance(output, (tuple, list)):
        output = {f"answer {i}": value for i, value in enumerate(output)}
    found = {
        name: value
        for name, value in output.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        if value.dim() and len(value) == rows
    }
    if not found:
        shapes = [f"{n} {list(v.shape)}" for n, v in output.items() if isinstance(v, torch.Tensor)]
        what = f"an input of one row has the answer {', '.join(shapes) or 'of no tensor'}"
        raise Fault(f"{what}: keep the dimension of the rows, which squeeze() drops")
    return {name: found[name] for name in sorted(found, key=lambda n: n not in FIRST)}


def asked_first(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the answers to inputs that nobody has tried; skip if the guess may be at fault."""
    try:
        return ask(model, **inputs)
    except (Fault, Skip):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and "unpack" not in str(error):
            raise Skip(f"forward refuses what this check makes up, {explained(error)}") from error
        if others := [name for name in MEDIA if takes(model, name) and name not in inputs]:
            needs = f"forward was not run: it may need {', '.join(others)}"
            raise Skip(f"{needs}, {explained(error)}") from error
        if "input_ids" in inputs or isinstance(error, OF_CODE):
            raise
        name, value = next(iter(inputs.items()))
        guess = f"{name} of the shape {list(value.shape)}"
        raise Skip(f"forward was not run: it takes no {guess}, {explained(error)}") from error


def pad(
    model: PreTrainedModel, rows: list[torch.Tensor], side: str
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return padded sequences as the arguments that generate would pass, and where tokens are."""
    width = max(row.shape[1] for row in rows)
    ids = torch.full((len(rows), width), pad_id(model))
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        place = slice(width - row.shape[1], None) if side == "left" else slice(row.shape[1])
        ids[i, place], mask[i, place] = row[0], 1
    inputs = {"input_ids": ids}
    if may_take(model, "attention_mask"):
        inputs["attention_mask"] = mask
    if side == "left" and takes(model, "position_ids"):
        inputs["position_ids"] = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    return inputs, mask.bool()


def compare(one: Answers, other: Answers, what: str, remedy: str = "") -> None:
    """Raise a Fault if two answers differ by more than rounding."""
    remedy = f": {remedy}" if remedy else ""
    for name in (name for name in one if name in other):
        if one[name].shape != other[name].shape:
            shapes = f"{list(one[name].shape)} became {list(other[name].shape)}"
            raise Fault(f"{what}: the shape {shapes} in {name}")
        difference = distance(one[name], other[name])
        if not math.isfinite(difference):
            raise Fault(f"{what}: NaN or infinity in {name}")
        if difference > TOLERANCE:
            raise Fault(f"{what}, by {100 * difference:.3g} % in {name}{remedy}")


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return ((one - other).abs().max() / one.abs().max().clamp(min=1e-6)).item()
