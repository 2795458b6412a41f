"""Check what a model generates, in the fresh process of `check` (probe.py)."""

from typing import TYPE_CHECKING, Any

import torch
from probe_errors import Caution, Fault, Skip, explained
from probe_inputs import (
    GENERATING,
    Answers,
    ask,
    compare,
    kind_of,
    longest,
    may_take,
    pad,
    pad_id,
    random_ids,
    takes,
    vocabulary,
)
from transformers import Cache, PreTrainedModel
from transformers.generation.utils import ALL_CACHE_NAMES
from transformers.utils import ModelOutput

if TYPE_CHECKING:
    from probe import Subject

SEQUENCE = "count from past_key_values.get_seq_length(), and mask as one pass does"
NEW, BEAMS = 5, 3  # tokens to generate, and texts that a search keeps


def check_cache(subject: "Subject") -> str:
    """Check that decoding with a cache gives the answers of one pass over everything."""
    model = subject.answering()
    kind = kind_of(model, subject.autos)
    if not model.can_generate() or kind == "encoder":
        raise Skip(f"{type(model).__name__} does not generate")
    if "causality" in subject.failed:
        raise Skip("no cache gives the answers of a model that sees later tokens")
    caches = ("past_key_values", *ALL_CACHE_NAMES)
    if not any(may_take(model, name) for name in caches):
        raise Skip("forward takes no past_key_values: every token costs a pass over all before it")
    room = longest(model) + 2
    prompt = random_ids(model, max(1, room - NEW))
    new = room - prompt.shape[1]
    steps = {use: greedy(model, prompt, new, use) for use in (True, False)}
    cached, plain = ({"logits": torch.stack(steps[use].logits, 1)} for use in (True, False))
    inputs = {"input_ids": prompt, "decoder_input_ids": steps[True].sequences}
    if kind == "decoder":
        inputs = {"input_ids": steps[True].sequences}
    options = {"use_cache": False} if takes(model, "use_cache") else {}
    at_once = ask(model, **inputs, **options)["logits"]
    whole = {"logits": at_once[:, -1 - new : -1]}
    what = "logits of a step beside a cache are not those of one pass"
    first = [{"logits": answers["logits"][:, :1]} for answers in (whole, cached)]
    compare(*first, what, "return all ids while the cache is empty (prepare_inputs_for_generation)")
    compare(whole, cached, what, SEQUENCE)
    what = "logits of generate(use_cache=False) are not those of one pass"
    compare(whole, plain, what, "use no cache and return all ids where use_cache is False")
    several = ""
    if kind == "decoder" and takes(model, "past_key_values"):
        several = after_cache(model, steps[True].sequences, at_once)
    return f"{new} tokens one by one{several} = one pass"


@torch.no_grad()
def after_cache(model: PreTrainedModel, ids: torch.Tensor, at_once: torch.Tensor) -> str:
    """Compare several tokens after a cache with one pass, as drafts and a second turn need."""
    half = ids.shape[1] // 2
    cache = greedy(model, ids[:, :half], 1, True).past_key_values
    if not isinstance(cache, Cache) or getattr(model, "_is_stateful", False):
        return ""
    mask = {"attention_mask": torch.ones_like(ids)} if may_take(model, "attention_mask") else {}
    rest = model(ids[:, half:], past_key_values=cache, use_cache=True, **mask).logits
    what = "logits of several tokens after a cache are not those without"
    compare({"logits": at_once[:, half:]}, {"logits": rest}, what)
    return ", and several after a cache,"


def greedy(
    model: PreTrainedModel, input_ids: torch.Tensor, new: int, use_cache: bool = True, **others: Any
) -> ModelOutput:
    options = {
        "attention_mask": torch.ones_like(input_ids),
        "num_beams": 1,
        "output_logits": True,
        **others,
    }
    return model.generate(
        input_ids,
        pad_token_id=pad_id(model),
        min_new_tokens=new,
        max_new_tokens=new,
        do_sample=False,
        use_cache=use_cache,
        return_dict_in_generate=True,
        **options,
    )


def check_generation(subject: "Subject") -> str:
    """Check that a padded batch, and a search for several texts, generate what they should."""
    model = subject.answering()
    kind = kind_of(model, subject.autos)
    if not model.can_generate():
        named = {str(subject.autos.get(auto)).split(".")[-1] for auto in GENERATING}
        if type(model).__name__ in named:
            raise Fault("generate() is missing: inherit GenerationMixin after PreTrainedModel")
    if not model.can_generate() or kind == "encoder":
        raise Skip(f"{type(model).__name__} does not generate")
    if {"padded rows", "causality", "cache"} & subject.failed:
        raise Skip("its answers are others in a padded batch, or beside a cache: see above")
    length = longest(model)
    rows = [random_ids(model, n, seed=n) for n in (max(2, length - 2), max(1, length // 2))]
    side = "left" if kind == "decoder" else "right"
    batch = stepwise(model, pad(model, rows, side)[0], 2)
    for i, row in enumerate(rows):
        alone = stepwise(model, {"input_ids": row, "attention_mask": torch.ones_like(row)}, 2)
        what = f"generate() answers rows padded on the {side} otherwise than alone"
        remedy = "return attention_mask and position_ids from prepare_inputs_for_generation"
        compare(alone, {"logits": batch["logits"][i : i + 1]}, what, remedy)
    if vocabulary(model) < 3 * BEAMS:
        return f"padded on the {side} = alone"
    try:
        scores = [searched(model, rows[0], use) for use in (True, False)]
    except Exception as error:
        raise Caution(f"a search of {BEAMS} beams: {explained(error)}") from error
    what = "a search by beams beside a cache is not that without"
    compare(*scores, what, "exchange the rows of all that is kept in reorder_cache of the cache")
    return f"padded on the {side} = alone, {BEAMS} beams beside a cache = without"


def stepwise(model: PreTrainedModel, inputs: Answers, new: int) -> Answers:
    """Return the logits of each greedy step."""
    inputs = {name: value for name, value in inputs.items() if name != "position_ids"}
    return {"logits": torch.stack(greedy(model, **inputs, new=new).logits, 1)}


def searched(model: PreTrainedModel, prompt: torch.Tensor, use_cache: bool) -> Answers:
    options = {"num_beams": BEAMS, "num_return_sequences": BEAMS, "output_scores": True}
    found = greedy(model, prompt, new=4, use_cache=use_cache, **options)
    return {"scores": found.sequences_scores}
