"""Check the answers of a loaded model, in the fresh process of `check` (probe.py).

Every check skips a model that lacks what it tests. `check_forward` comes first: where it fails,
the answers are worth nothing to the others.
"""

from typing import TYPE_CHECKING

import torch
from probe_errors import Caution, Fault, Skip, explained, place
from probe_generation import check_cache, check_generation
from probe_inputs import (
    FIRST,
    GENERATING,
    MEDIA,
    Answers,
    ask,
    asked_first,
    compare,
    kind_of,
    longest,
    main_inputs,
    may_take,
    pad,
    random_ids,
    takes,
)
from probe_training import check_options, check_training
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from probe import Subject

EACH_TOKEN = ("AutoModelForCausalLM", "AutoModelForMaskedLM")
RANDOM = (
    "pass training=self.training to dropout, draw no random numbers in forward, and keep nothing "
    "between two calls"
)


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
    check_shape(subject, once, inputs)
    subject.silence = ""
    check_device(subject, inputs)
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


def check_shape(subject: "Subject", answers: Answers, inputs: Answers) -> None:
    """Check that the first answer has a name, and is of every token where a head says so."""
    name, first = next(iter(answers.items()))
    if name not in FIRST and subject.auto in (*GENERATING, *EACH_TOKEN):
        raise Fault("forward returns no logits by name: return a ModelOutput, not a tuple")
    named = len(getattr(subject.loaded().config, "id2label", None) or ())
    if subject.auto.endswith("Classification") and first.shape[-1] not in (1, named):
        what = f"{name} are of {first.shape[-1]} classes, and id2label names {named}"
        raise Fault(f"{what}: name each in config.json, as pipelines do")
    tokens = next(iter(inputs.values())).shape[1]
    if subject.auto in EACH_TOKEN and list(first.shape[1:2]) != [tokens]:
        raise Fault(
            f"{tokens} tokens have {name} of the shape {list(first.shape)}: answer each token, "
            "and fewer only where logits_to_keep says so"
        )


def check_device(subject: "Subject", inputs: Answers) -> None:
    """Check that forward makes its tensors where its input is, by torch's device without values."""
    model, _ = subject.load()
    try:
        ask(model.to("meta"), **{name: value.to("meta") for name, value in inputs.items()})
    except Exception as error:  # what needs values fails there, which says nothing
        if "cpu" in str(error) and "device" in str(error) and "meta" in str(error):
            where = f"a tensor stays on the CPU where the input is elsewhere{place(error)}"
            raise Fault(f"{where}: make it with device=input_ids.device") from error


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
            answers = {n: answer[i : i + 1] for n, answer in batch.items() if n in single}
            for name, answer in answers.items():
                answers[name] = of_tokens(answer, single[name], places[i])
            what = f"rows padded on the {side} are not answered as they are alone"
            tokens = {name: answer for name, answer in single.items() if answer.dim() > 2}
            compare(tokens, answers, what, remedy_of_padding(model, inputs, batch))
            remedy = "leave padding out of what is pooled" if tokens else ""
            compare(single, answers, what, remedy or remedy_of_padding(model, inputs, batch))
    return f"padded on the {' and '.join(sides)} = alone"


def of_tokens(answer: torch.Tensor, single: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Take the answers of padding out of an answer for each token."""
    if answer.dim() == single.dim():
        for dim in range(1, answer.dim()):
            if answer.shape[dim] == len(places) and single.shape[dim] == places.sum():
                answer = answer.index_select(dim, places.nonzero()[:, 0])
    return answer


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
        raise Skip("only what generates has to be causal")
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
    whose = " of the decoder" if kind == "encoder-decoder" else ""
    compare(
        {first: before[:, :-1]},
        {first: after[:, :-1]},
        f"a later token{whose} changes earlier answers",
        "where create_causal_mask gives None, pass is_causal=True to attention",
    )
    if torch.equal(before[:, -1], after[:, -1]):
        raise Fault("the last token changes nothing at all: is the model reading its input?")
    return "later tokens change nothing before them"


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
    "generation": check_generation,
    "masked rows": check_masked_row,
    "options": check_options,
    "training": check_training,
}
