"""Promises about logits."""

import torch
from hypothesis import strategies as st

from .building import as_batch, build, check_same, embedded, plain, read_in_chunks, texts
from .cases import BACKENDS, WRITERS, Case, cases

alone_cases = cases(backends=BACKENDS, steady=True)


@torch.no_grad()
def check_alone(case: Case):
    """A text has the logits that it has alone, whatever it is padded with and on which side."""
    model, parts = build(case), texts(case)
    batch, real = as_batch(case, *parts)
    logits = model(**batch).logits
    for i, rows in enumerate(zip(*parts, strict=True)):
        inputs, _ = as_batch(case, *([row] for row in rows))
        without_mask = {name: value for name, value in inputs.items() if "mask" not in name}
        check_same(logits[i, real[i]], model(**without_mask).logits[0], f"text {i} and it alone")


chunk_cases = cases(backends=BACKENDS, steady=True, chunks=True, families=WRITERS).filter(
    # transformers counts the tokens of a second chunk from zero there, for each model there is.
    lambda case: not (case.backend == "flex_attention" and case.cache == "static")
)


@torch.no_grad()
def check_chunks(case: Case):
    """A text read in chunks beside a cache has the logits of the text read at once."""
    model = build(case)
    batch, real = as_batch(case, *texts(case))
    actual = read_in_chunks(model, case, batch)
    expected = model(**batch, use_cache=False).logits
    check_same(actual[real], expected[real], f"chunks beside a {case.cache} cache and at once")


backend_cases = cases(backends=BACKENDS[1:])


@torch.no_grad()
def check_backend(case: Case):
    """Each backend gives what eager attention gives."""
    batch, real = as_batch(case, *texts(case))
    model = build(case)
    actual = model(**embedded(model, case, batch)).logits
    expected = build(case, "eager")(**batch).logits
    check_same(actual[real], expected[real], f"{case.backend} and eager")


@st.composite
def fast_logits_cases(draw):
    case = draw(cases(chunks=True, families=WRITERS))
    case.reweighted = draw(st.integers(0, 4)) == 4
    return case


@torch.no_grad()
def check_fast_logits(case: Case):
    """What is fast computes what is plain, at once and beside a cache."""
    batch, real = as_batch(case, *texts(case))
    at_once, in_chunks = [], []
    for is_plain in (False, True):
        with plain() if is_plain else as_it_is():
            output = build(case)(**batch)
            at_once.append(output.logits[real])
            in_chunks.append(read_in_chunks(build(case), case, batch)[real])
    check_same(*at_once, "fast and plain, at once")
    check_same(*in_chunks, f"fast and plain, in chunks beside a {case.cache} cache")


def as_it_is():
    return torch.no_grad()
