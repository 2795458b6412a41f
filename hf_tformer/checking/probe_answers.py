"""Check the answers of a loaded model, in the fresh process of `check` (probe.py).

Every check skips a model that lacks what it tests. `check_forward` comes first: where it fails,
the answers are worth nothing to the others.
"""

import math
from typing import TYPE_CHECKING

import torch
from probe_errors import Caution, Fault, Skip, explained
from probe_inputs import (
    MEDIA,
    ask,
    asked_first,
    has_decoder,
    longest,
    main_inputs,
    may_take,
    pad,
    pad_id,
    random_ids,
    takes,
)
from probe_training import check_training
from transformers import Cache, PreTrainedModel
from transformers.generation.utils import ALL_CACHE_NAMES
from transformers.utils import ModelOutput

if TYPE_CHECKING:
    from probe import Subject

Answers = dict[str, torch.Tensor]
TOLERANCE = 1e-4  # of the scale of the answers
NEW = 5  # tokens to generate
GENERATING = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM")
RANDOM = (
    "pass training=self.training to dropout, draw no random numbers in forward, and keep nothing "
    "between two calls"
)


def kind_of(model: PreTrainedModel, autos: dict) -> str:
    """Return the kind of a model: "encoder-decoder", "decoder" or "encoder"."""
    if has_decoder(model):
        return "encoder-decoder"
    if "AutoModelForMaskedLM" in autos:
        return "encoder"
    return "decoder" if model.can_generate() or "AutoModelForCausalLM" in autos else "encoder"


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


def check_forward(subject: "Subject") -> str:
    """Check that the model answers, the same input always in the same way, and in its dtype."""
    model = subject.answering()
    subject.silence = "forward failed: see above"
    try:
        inputs = main_inputs(model)
        once = asked_first(model, dict(inputs))
    except Skip as skip:
        subject.silence = str(skip)
        raise
    if any(not answer.isfinite().all() for answer in once.values()):
        raise Fault(f"NaN or infinity in {next(iter(once))}")
    compare(once, ask(model, **inputs), "the same input has two answers", RANDOM)
    subject.silence = ""
    said = subject.raw_config.get("dtype") or subject.raw_config.get("torch_dtype")
    dtype = said if said in ("bfloat16", "float16") else "bfloat16"
    half, _ = subject.load(dtype=getattr(torch, dtype))
    cast = {n: v.to(half.dtype) if v.is_floating_point() else v for n, v in inputs.items()}
    try:
        ask(half, **cast)
    except Exception as error:
        if "not implemented for" not in str(error):  # torch has no such operation on a CPU
            message = f"with dtype={dtype}: {explained(error)}"
            if said == dtype:
                raise Fault(f"{message}; so does everybody's first call") from error
            raise Caution(f"{message}; many people load models so") from error
    ignored = [name for name in MEDIA if takes(model, name) and name not in inputs]
    return "one answer to one input" + (f"; {', '.join(ignored)} not tried" if ignored else "")


def check_padding(subject: "Subject") -> str:
    """Check that a sequence in a padded batch has the same answers as alone."""
    model = subject.answering()
    length = longest(model)
    rows = [random_ids(model, n, seed=n) for n in (length, max(2, length // 2 + 1))]
    masked = may_take(model, "attention_mask")
    alone = []
    for row in rows:
        mask = {"attention_mask": torch.ones_like(row)} if masked else {}
        alone.append(ask(model, input_ids=row, **mask))
    sides = ("left", "right") if kind_of(model, subject.autos) == "decoder" else ("right",)
    for side in sides:
        inputs, places = pad(model, rows, side)
        batch = ask(model, **inputs)
        for i, single in enumerate(alone):
            answers = {name: answer[i : i + 1] for name, answer in batch.items()}
            for name, answer in answers.items():
                if answer.shape[:2] == places[:1].shape:  # an answer per token: at padding is none
                    answers[name] = answer[:, places[i]]
            what = f"rows padded on the {side} are not answered as they are alone"
            tokens = {name: answer for name, answer in single.items() if answer.dim() > 2}
            compare(tokens, answers, what, remedy_of_padding(model, inputs, batch))
            remedy = "leave padding out of what is pooled" if tokens else ""
            compare(single, answers, what, remedy or remedy_of_padding(model, inputs, batch))
    return f"padded on the {' and '.join(sides)} = alone"


def remedy_of_padding(model: PreTrainedModel, inputs: Answers, batch: Answers) -> str:
    """Return what the author of a model can do about the influence of padding."""
    if "attention_mask" not in inputs:
        return "forward takes no attention_mask, so padding counts as tokens: take one"
    everything = {**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}
    unmasked = ask(model, **everything)
    if all(torch.equal(batch[name], unmasked[name]) for name in batch):
        return "attention_mask changes nothing: use it"
    return "mask the keys of padding, and leave it out of positions and of what is pooled"


def check_causality(subject: "Subject") -> str:
    """Check that a later token never changes an earlier answer."""
    model = subject.answering()
    kind = kind_of(model, subject.autos)
    if kind == "encoder":
        raise Skip("an encoder reads both ways")
    name = "decoder_input_ids" if kind == "encoder-decoder" else "input_ids"
    ids = random_ids(model, longest(model))
    changed = ids.clone()
    others = random_ids(model, 64, seed=3)[0]
    changed[0, -1] = others[others != ids[0, -1]][0]
    given = {"input_ids": ids}
    first, before = next(iter(ask(model, **{**given, name: ids}).items()))
    after = ask(model, **{**given, name: changed})[first]
    if before.dim() < 3 or before.shape[1] != ids.shape[1]:
        raise Skip(f"{type(model).__name__} does not answer each token")
    place = " of the decoder" if kind == "encoder-decoder" else ""
    compare(
        {first: before[:, :-1]},
        {first: after[:, :-1]},
        f"a later token{place} changes earlier answers",
        "where create_causal_mask gives None, pass is_causal=True to attention",
    )
    if torch.equal(before[:, -1], after[:, -1]):
        raise Fault("the last token changes nothing at all: is the model reading its input?")
    subject.is_causal = True
    return "later tokens change nothing before them"


def check_cache(subject: "Subject") -> str:
    """Check that decoding with a cache gives the answers of one pass over everything."""
    model = subject.answering()
    kind = kind_of(model, subject.autos)
    if kind == "encoder":
        raise Skip("an encoder has no cache")
    if not model.can_generate():
        named = {str(subject.autos.get(auto)).split(".")[-1] for auto in GENERATING}
        if type(model).__name__ in named:
            raise Fault("generate() is missing: inherit GenerationMixin after PreTrainedModel")
        raise Skip(f"{type(model).__name__} does not generate")
    if not subject.is_causal:
        raise Skip("no cache gives the answers of a model that sees later tokens")
    caches = ("past_key_values", *ALL_CACHE_NAMES)
    if not any(may_take(model, name) for name in caches):
        raise Skip("forward takes no past_key_values: every token costs a pass over all before it")
    room = longest(model) + 2
    prompt = random_ids(model, max(1, room - NEW))
    new = room - prompt.shape[1]
    steps = {use: greedy(model, prompt, new, use) for use in (True, False)}
    cached, plain = (torch.stack(steps[use].logits, 1) for use in (True, False))
    what = "logits beside a cache are not those without"
    remedy = "count from past_key_values.get_seq_length(), and mask alike with and without a cache"
    compare({"logits": plain}, {"logits": cached}, what, remedy)
    inputs = {"input_ids": prompt, "decoder_input_ids": steps[True].sequences}
    if kind == "decoder":
        inputs = {"input_ids": steps[True].sequences}
    options = {"use_cache": False} if takes(model, "use_cache") else {}
    at_once = ask(model, **inputs, **options)["logits"]
    compare({"logits": at_once[:, -1 - new : -1]}, {"logits": cached}, f"{what}, in one pass")
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


def greedy(model: PreTrainedModel, prompt: torch.Tensor, new: int, use_cache: bool) -> ModelOutput:
    return model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        pad_token_id=pad_id(model),
        min_new_tokens=new,
        max_new_tokens=new,
        do_sample=False,
        num_beams=1,
        use_cache=use_cache,
        output_logits=True,
        return_dict_in_generate=True,
    )


def check_masked_row(subject: "Subject") -> str:
    """Check that a sequence of padding alone gives numbers, and does not change another one."""
    model = subject.answering()
    ids = random_ids(model, longest(model))
    if not may_take(model, "attention_mask"):
        raise Skip("forward takes no attention_mask")
    mask = torch.ones_like(ids)
    alone = ask(model, input_ids=ids, attention_mask=mask)
    masks = torch.cat((mask, torch.zeros_like(mask)))
    batch = ask(model, input_ids=ids.repeat(2, 1), attention_mask=masks)
    # The mean of no token may be NaN, which harms nobody.
    if any(not answer.isfinite().all() for answer in batch.values() if answer.dim() > 2):
        raise Fault(
            "a row of padding alone gives NaN or infinity: mask with torch.finfo(dtype).min, not "
            "with -inf"
        )
    both = {name: answer[:1] for name, answer in batch.items()}
    compare(alone, both, "a row of padding alone changes the row beside it")
    return "finite"


ANSWER_CHECKS = {
    "forward": check_forward,
    "padded rows": check_padding,
    "causality": check_causality,
    "cache": check_cache,
    "masked rows": check_masked_row,
    "training": check_training,
}
