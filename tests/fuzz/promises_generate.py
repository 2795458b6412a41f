"""Promises about written texts."""

from dataclasses import replace

import torch
from hypothesis import strategies as st

from .building import PromiseError, build, plain, prompts, texts
from .cases import BACKENDS, DECODERS, WRITERS, Case, cases, generate_options, steady_options

TIE = 1e-3  # two choices whose scores are this near are as good as each other in float32


@st.composite
def begun(draw, drawn):
    """Some encoder-decoders are told how their texts begin."""
    case = draw(drawn)
    case.begun = case.family == "seq2seq" and draw(st.integers(0, 3)) == 3
    return case


alone_text_cases = begun(
    cases(backends=BACKENDS, steady=True, options=steady_options, families=WRITERS)
).filter(
    # generate() treats every mask of a static cache as a tensor, for each model there is.
    lambda case: not (case.backend == "flex_attention" and "cache_implementation" in case.options)
)


def check_alone_text(case: Case):
    """A prompt is continued in a padded batch as it is alone."""
    same_unless_tied(case, write_together, write_alone, "together and alone")


def write_together(case, model):
    return [until_end(text, model, case) for text in write(case, model, *texts(case))]


def write_alone(case, model):
    alone = (
        write(case, model, *([row] for row in rows)) for rows in zip(*texts(case), strict=True)
    )
    return [until_end(text, model, case) for (text,) in alone]


fast_text_cases = begun(cases(options=generate_options, families=WRITERS))


def check_fast_text(case: Case):
    """What is fast writes what is plain writes, whatever is asked of generate."""
    same_unless_tied(case, write_or_refuse, write_plainly, "fast and plain")


def write_plainly(case, model):
    with plain():
        return write_or_refuse(case, model)


def write_or_refuse(case, model):
    """What transformers refuses has to be refused alike."""
    try:
        return write(case, model, *texts(case))
    except ValueError as error:
        return f"ValueError: {error}"
    except RuntimeError as error:  # none may be drawn where every token is forbidden
        if "probability tensor" not in str(error):
            raise
        return f"RuntimeError: {error}"


@torch.no_grad()
def write(case, model, *parts):
    """The new tokens of each text."""
    torch.manual_seed(case.seed)
    inputs = prompts(case, *parts)
    output = model.generate(**inputs, **case.options)
    ids = inputs["input_ids"] if case.family in DECODERS else inputs.get("decoder_input_ids")
    skipped = 1 if ids is None else ids.shape[1]
    return [text[skipped:] for text in getattr(output, "sequences", output).tolist()]


def until_end(text, model, case):
    ends = case.options.get("eos_token_id", model.config.eos_token_id)
    ends = ends if isinstance(ends, list) else [ends]
    stops = [i for i, token in enumerate(text) if token in ends]
    return text[: stops[0] + 1] if stops else text


def same_unless_tied(case, one_way, another_way, what):
    """In float32 two ways may choose differently between equals; in float64 they have to agree."""
    ours, theirs = (way(case, build(case)) for way in (one_way, another_way))
    if ours == theirs:
        return
    message = f"{what}: {ours} and {theirs}"
    if isinstance(ours, str) or isinstance(theirs, str):
        raise PromiseError(message)
    exact = replace(case, dtype="float64")
    if finds_too_few(case) or are_equally_good(exact):
        return
    if case.dtype == "float64":
        raise PromiseError(message)
    exact_texts = [way(exact, build(exact)) for way in (one_way, another_way)]
    if exact_texts[0] != exact_texts[1] or (is_greedy(case) and not is_tie(case, ours, theirs)):
        raise PromiseError(message)


@torch.no_grad()
def finds_too_few(case):
    """Whether a beam search finds fewer texts than it returns, as nothing else is allowed.

    transformers fills up with texts whose scores are all the score of what must not be chosen, in
    an order that says nothing. Ours ends the best ones where no token may follow.
    """
    if case.options.get("num_beams", 1) == 1:
        return False
    options = case.options | {"output_scores": True, "return_dict_in_generate": True}
    with plain():
        scores = build(case).generate(**prompts(case, *texts(case)), **options).sequences_scores
    return bool((scores < -1e6).any())


@torch.no_grad()
def are_equally_good(case):
    """Whether beam search finds texts of the same scores in both ways: a cap makes many equal."""
    if case.options.get("num_beams", 1) == 1 or case.options.get("do_sample"):
        return False
    options = case.options | {"output_scores": True, "return_dict_in_generate": True}
    asked = prompts(case, *texts(case))
    ours = build(case).generate(**asked, **options).sequences_scores
    with plain():
        theirs = build(case).generate(**asked, **options).sequences_scores
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def is_greedy(case):
    return case.options.get("num_beams", 1) == 1 and not case.options.get("do_sample")


@torch.no_grad()
def is_tie(case, ours, theirs):
    """Whether the first tokens that differ have nearly the same score, as generate sees it."""
    inputs, details = prompts(case, *texts(case)), {"output_scores": True}
    options = case.options | details | {"return_dict_in_generate": True}
    with plain():
        steps = build(case).generate(**inputs, **options).scores
    for row, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        pairs = enumerate(zip(mine, other, strict=False))
        differing = [(at, a, b) for at, (a, b) in pairs if a != b]
        if differing:
            at, a, b = differing[0]
            scores = steps[at][row]
            largest = scores[scores.isfinite()].abs().max()
            if not abs(scores[a] - scores[b]) <= TIE * largest.clamp(min=1):
                return False
        elif mine != other:  # one ended where the other went on
            return False
    return True
