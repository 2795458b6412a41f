"""What the fresh process of `check` asks a loaded model; see probe.py, which runs this.

The inputs are made from the configuration: random ids that are no special ids, short enough for any
number of positions. Every check decides for itself whether the model offers what it asks about.
"""

import inspect
from collections.abc import Mapping

import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

TOLERANCE = 1e-4  # of the scale of the answers
LENGTHS = (7, 4)


class Fault(Exception):  # noqa: N818 (the fault of a model, not of this program)
    """What is wrong, and the remedy, in one sentence."""


class Skip(Exception):  # noqa: N818
    """Why a check does not apply."""


def parameters_of(model: PreTrainedModel) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters


def takes(model: PreTrainedModel, *names) -> bool:
    return set(names) <= set(parameters_of(model))


def has_decoder(model: PreTrainedModel) -> bool:
    """Whether it reads two texts: of an encoder-decoder, the encoder may be opened alone."""
    return model.config.is_encoder_decoder and takes(model, "decoder_input_ids")


def kind_of(model: PreTrainedModel, autos: dict) -> str:
    """What order its tokens have: "encoder-decoder", "decoder" or "encoder"."""
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
    """[1, length] of ids that mean nothing special."""
    if model.main_input_name != "input_ids":
        raise Skip(f"its main input is {model.main_input_name}, not text")
    size = model.get_input_embeddings().weight.shape[0]
    if model.config.is_encoder_decoder:  # the same ids serve as source and as target
        size = min(size, getattr(model.config, "vocab_size", size))
    ordinary = [i for i in range(min(size, 1000)) if i not in special_ids(model)]
    if len(ordinary) < 2:
        raise Skip(f"its vocabulary of {size} has no two ordinary tokens")
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(ordinary)[torch.randint(len(ordinary), (1, length), generator=generator)]


def other_than(model: PreTrainedModel, token: torch.Tensor) -> torch.Tensor:
    ids = random_ids(model, 64, seed=3)[0]
    return ids[ids != token][0]


@torch.no_grad()
def ask(model: PreTrainedModel, **inputs: torch.Tensor) -> torch.Tensor:
    """The answer as one tensor: logits where there are any."""
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
    """Raises where two answers differ by more than rounding."""
    if one.shape != other.shape:
        raise Fault(f"{what}: shape {list(one.shape)} became {list(other.shape)}")
    scale = one.abs().max().clamp(min=1e-6)
    difference = ((one - other).abs().max() / scale).item()
    if not difference <= TOLERANCE:  # NaN too
        raise Fault(f"{what}, by {difference:.1e} of their scale")
    return difference


def pad(model: PreTrainedModel, rows: list[torch.Tensor], side: str) -> dict[str, torch.Tensor]:
    """Rows of ids → what generate would give a model for them."""
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
    """A row in a padded batch is answered as it is alone."""
    rows = [random_ids(model, length, seed=length) for length in LENGTHS]
    if not takes(model, "attention_mask"):
        raise Fault("forward takes no attention_mask, so padding is read as text: take one")
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
    """Decoding token by token beside a cache answers like one pass over everything."""
    kind = kind_of(model, autos)
    if kind == "encoder":
        raise Skip("an encoder has no cache")
    if not model.can_generate():
        if {"AutoModelForCausalLM", "AutoModelForSeq2SeqLM"} & set(autos) and is_head(model):
            raise Fault("generate() is missing: inherit GenerationMixin after PreTrainedModel")
        raise Skip(f"{type(model).__name__} does not generate")
    if not takes(model, "past_key_values"):
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


def is_head(model: PreTrainedModel) -> bool:
    return bool(model.base_model_prefix) and hasattr(model, model.base_model_prefix)


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
    """A later token never changes an earlier answer."""
    kind = kind_of(model, autos)
    if kind == "encoder":
        raise Skip("an encoder reads both ways")
    name = "decoder_input_ids" if kind == "encoder-decoder" else "input_ids"
    ids = random_ids(model, LENGTHS[0])
    changed = ids.clone()
    changed[0, -1] = other_than(model, ids[0, -1])
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
    """A row of padding alone gives numbers, and does not touch the row beside it."""
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
