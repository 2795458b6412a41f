"""Check the answers of a loaded model, in the fresh process of `check` (probe.py).

The inputs are random ids that are no special ids, in sequences short enough for any number of
positions. Every check skips a model that lacks what it tests.
"""

import inspect
import math
from collections.abc import Mapping

import torch
from transformers import PreTrainedModel
from transformers.generation.utils import ALL_CACHE_NAMES
from transformers.utils import ModelOutput

TOLERANCE = 1e-4  # of the scale of the answers
LENGTHS = (7, 4)


class Fault(Exception):  # noqa: N818 (the fault of a model, not of this program)
    """A sentence that says what is wrong, and the remedy."""


class Skip(Exception):  # noqa: N818
    """The reason why a check does not apply."""


def parameters_of(model: PreTrainedModel) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters


def takes(model: PreTrainedModel, *names: str) -> bool:
    return set(names) <= set(parameters_of(model))


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


def special_ids(model: PreTrainedModel) -> set[int]:
    config, found = model.config, set()
    for name in ("pad", "bos", "eos", "decoder_start"):
        value = getattr(config, f"{name}_token_id", None)
        found |= set(value if isinstance(value, list) else [value])
    return found - {None}


def pad_id(model: PreTrainedModel) -> int:
    value = getattr(model.config, "pad_token_id", None)
    return 0 if value is None else value


def random_ids(model: PreTrainedModel, length: int, seed: int = 0) -> torch.Tensor:
    """Return ids [1, length] without special tokens."""
    if model.main_input_name != "input_ids":
        raise Skip(f"its main input is {model.main_input_name}, not input_ids")
    try:
        size = len(model.get_input_embeddings().weight)
    except NotImplementedError:  # transformers finds them by their usual names only
        size = model.config.vocab_size
    if model.config.is_encoder_decoder:  # the same ids serve as source and as target
        size = min(size, getattr(model.config, "vocab_size", size))
    ordinary = [i for i in range(min(size, 1000)) if i not in special_ids(model)]
    if len(ordinary) < 2:
        raise Skip(f"its vocabulary of {size} has no two ordinary tokens")
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(ordinary)[torch.randint(len(ordinary), (1, length), generator=generator)]


@torch.no_grad()
def ask(model: PreTrainedModel, **inputs: torch.Tensor) -> torch.Tensor:
    """Return the answer as one tensor: logits if there are any."""
    if has_decoder(model) and "decoder_input_ids" not in inputs:
        target = random_ids(model, 5, seed=2)
        inputs["decoder_input_ids"] = target.expand(len(inputs["input_ids"]), -1)
    output = model(**inputs)
    if isinstance(output, dict):
        names = ("logits", "start_logits", "last_hidden_state", *output)
        return next(output[name] for name in names if isinstance(output.get(name), torch.Tensor))
    return output[0] if isinstance(output, (tuple, list)) else output


def answers(model: PreTrainedModel) -> torch.Tensor:
    return ask(model, input_ids=random_ids(model, LENGTHS[0]))


def compare(one: torch.Tensor, other: torch.Tensor, what: str) -> float:
    """Return the difference of two answers; raise a Fault if it is more than rounding."""
    if one.shape != other.shape:
        raise Fault(f"{what}: shape {list(one.shape)} became {list(other.shape)}")
    scale = one.abs().max().clamp(min=1e-6)
    difference = ((one - other).abs().max() / scale).item()
    if not math.isfinite(difference):
        raise Fault(f"{what}: they have NaN or infinity")
    if difference > TOLERANCE:
        raise Fault(f"{what}, by {difference:.1e} of their scale")
    return difference


def pad(model: PreTrainedModel, rows: list[torch.Tensor], side: str) -> dict[str, torch.Tensor]:
    """Return padded sequences as the arguments that generate would pass to a model."""
    width = max(row.shape[1] for row in rows)
    ids = torch.full((len(rows), width), pad_id(model))
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        place = slice(width - row.shape[1], None) if side == "left" else slice(row.shape[1])
        ids[i, place], mask[i, place] = row[0], 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    if side == "left" and takes(model, "position_ids"):
        inputs["position_ids"] = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    return inputs


def check_padding(model: PreTrainedModel, autos: dict) -> str:
    """Check that a sequence in a padded batch has the same answer as alone."""
    rows = [random_ids(model, length, seed=length) for length in LENGTHS]
    if not takes(model, "attention_mask"):
        raise Fault("forward takes no attention_mask, so padding counts as tokens: take one")
    alone = [ask(model, input_ids=row, attention_mask=torch.ones_like(row))[0] for row in rows]
    sides = ("left", "right") if kind_of(model, autos) == "decoder" else ("right",)
    for side in sides:
        inputs = pad(model, rows, side)
        batch = ask(model, **inputs)
        for row, single, mask in zip(batch, alone, inputs["attention_mask"], strict=True):
            if row.shape != single.shape:  # an answer per token: at padding there is none
                row = row[mask.bool()]
            compare(single, row, f"rows padded on the {side} are not answered as they are alone")
    return f"padded on the {' and '.join(sides)} = alone"


def check_cache(model: PreTrainedModel, autos: dict) -> str:
    """Check that decoding with a cache gives the answers of one pass over everything."""
    kind = kind_of(model, autos)
    if kind == "encoder":
        raise Skip("an encoder has no cache")
    if not model.can_generate():
        is_head = model.base_model_prefix and hasattr(model, model.base_model_prefix)
        if {"AutoModelForCausalLM", "AutoModelForSeq2SeqLM"} & set(autos) and is_head:
            raise Fault("generate() is missing: inherit GenerationMixin after PreTrainedModel")
        raise Skip(f"{type(model).__name__} does not generate")
    if parameters_of(model).keys().isdisjoint({"past_key_values", *ALL_CACHE_NAMES}):
        raise Skip("forward takes no past_key_values: every token costs a pass over all before it")
    prompt = random_ids(model, 4)
    steps = {use: greedy(model, prompt, use) for use in (True, False)}
    what = "logits beside a cache are not those without"
    compare(torch.stack(steps[False].logits, 1), torch.stack(steps[True].logits, 1), what)
    inputs = {"input_ids": prompt, "decoder_input_ids": steps[True].sequences}
    if kind == "decoder":
        inputs = {"input_ids": steps[True].sequences}
    if takes(model, "use_cache"):
        inputs["use_cache"] = False
    at_once = ask(model, **inputs)[:, -1 - len(steps[True].logits) : -1]
    compare(at_once, torch.stack(steps[True].logits, 1), f"{what}, in one pass")
    return f"{len(steps[True].logits)} tokens one by one = one pass"


def greedy(model: PreTrainedModel, prompt: torch.Tensor, use_cache: bool) -> ModelOutput:
    return model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        pad_token_id=pad_id(model),
        min_new_tokens=5,
        max_new_tokens=5,
        do_sample=False,
        num_beams=1,
        use_cache=use_cache,
        output_logits=True,
        return_dict_in_generate=True,
    )


def check_causality(model: PreTrainedModel, autos: dict) -> str:
    """Check that a later token never changes an earlier answer."""
    kind = kind_of(model, autos)
    if kind == "encoder":
        raise Skip("an encoder reads both ways")
    name = "decoder_input_ids" if kind == "encoder-decoder" else "input_ids"
    ids = random_ids(model, LENGTHS[0])
    changed = ids.clone()
    others = random_ids(model, 64, seed=3)[0]
    changed[0, -1] = others[others != ids[0, -1]][0]
    given = {"input_ids": ids}
    before = ask(model, **{**given, name: ids})
    after = ask(model, **{**given, name: changed})
    if before.dim() < 3 or before.shape[1] != ids.shape[1]:
        raise Skip(f"{type(model).__name__} does not answer each token")
    compare(before[:, :-1], after[:, :-1], "a later token changes earlier answers")
    if torch.equal(before[:, -1], after[:, -1]):
        raise Fault("the last token changes nothing at all: is the model reading its input?")
    return "later tokens change nothing before them"


def check_masked_row(model: PreTrainedModel, autos: dict) -> str:
    """Check that a sequence of padding alone gives numbers, and does not change another one."""
    if not takes(model, "attention_mask"):
        raise Skip("forward takes no attention_mask")
    ids = random_ids(model, LENGTHS[0])
    mask = torch.ones_like(ids)
    alone = ask(model, input_ids=ids, attention_mask=mask)
    batch = ask(
        model, input_ids=ids.repeat(2, 1), attention_mask=torch.cat((mask, torch.zeros_like(mask)))
    )
    if not batch.isfinite().all():
        raise Fault(
            "a row of padding alone gives NaN or infinity: mask with torch.finfo(dtype).min, not "
            "with -inf"
        )
    compare(alone, batch[:1], "a row of padding alone changes the row beside it")
    return "finite"


ANSWER_CHECKS = (
    ("padded rows", check_padding),
    ("cache", check_cache),
    ("causality", check_causality),
    ("masked rows", check_masked_row),
)
