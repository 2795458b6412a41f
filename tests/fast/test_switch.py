"""What makes a CPU fast can be turned off and on, and is off beside versions it does not know."""

import subprocess
import sys

import pytest
import torch
from transformers.generation import GenerationMixin

from hf_tformer import TformerDecoderForCausalLM, TformerDecoderModel, fast
from hf_tformer.fast import TESTED, is_tested, patches
from support.counting import counted_passes, generated, left_padded
from support.families import DECODER, random_rows
from support.fast_paths import VARIANTS


def methods():
    return TformerDecoderForCausalLM._sample, TformerDecoderModel.run_layers


def test_all_is_as_it_was_without_it_and_comes_back():
    before = methods()
    with fast.disabled():
        assert fast.status() == "off: disable() was called"
        assert TformerDecoderForCausalLM._sample is GenerationMixin._sample
        assert "_sample" not in vars(TformerDecoderForCausalLM)
        assert patches.ORIGINALS == {}
        with fast.disabled():
            assert methods()[1] is not before[1]
        assert not patches.ORIGINALS  # the inner one does not turn it on
    assert fast.status() == "on"
    assert methods()[0] is not GenerationMixin._sample


def test_what_is_replaced_is_listed_with_what_it_replaces():
    owners = {(owner.__name__, name) for owner, name in patches.ORIGINALS}
    assert ("TformerDecoderModel", "run_layers") in owners
    assert {name for _, name in owners} == {
        "_beam_search",
        "_prepare_cache_for_generation",
        "_sample",
        "run_layers",
    }


@pytest.mark.parametrize(
    ("version", "expected"),
    [("5.16.0", False), ("5.16.1", True), ("5.24.4", True), ("5.25.0", False), ("6.0.0", False)],
)
def test_only_versions_between_the_oldest_and_the_newest_tested_ones_count(version, expected):
    assert is_tested("transformers", version) is expected


def test_a_local_build_of_torch_is_its_release():
    assert is_tested("torch", f"{TESTED['torch'][1]}.0+cpu")


def test_beside_untested_versions_nothing_is_replaced_unless_asked(monkeypatch):
    monkeypatch.setattr(fast, "untested_versions", lambda: {"torch": "9.9"})
    fast.disable()
    try:
        fast.enable()
        assert fast.status().startswith("off: not tested with torch 9.9")
        assert patches.ORIGINALS == {}
        model = DECODER.build()
        assert generated(model, **left_padded([5]))[1] == []
        fast.enable(untested=True)
        assert fast.status() == "on"
        assert generated(model, **left_padded([5]))[1] != []
    finally:
        monkeypatch.undo()
        fast.disable()
        fast.enable()


def test_it_can_be_turned_off_before_a_model_is_touched(warm_python):
    code = """
import hf_tformer
hf_tformer.fast.disable()
from transformers.generation import GenerationMixin
assert hf_tformer.TformerDecoderForCausalLM._sample is GenerationMixin._sample
hf_tformer.fast.enable()
assert hf_tformer.TformerDecoderForCausalLM._sample is not GenerationMixin._sample
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("texts", [1, 3])
@pytest.mark.parametrize("variant", ["as it is", "every bias", "post norm", "norms of heads"])
def test_half_precision_is_as_near_to_float32_as_the_modules_are(family, dtype, texts, variant):
    model = family.build(**VARIANTS[variant])
    ids = torch.tensor(random_rows([24] * texts))
    with torch.no_grad(), fast.disabled():
        exact = family.steps(model, ids, 1), family.at_once(model, ids)
    model.to(dtype)

    @torch.no_grad()
    def errors():
        found = family.steps(model, ids, 1), family.at_once(model, ids)
        return [(a.float() - b).square().mean() for a, b in zip(found, exact, strict=True)]

    with (
        counted_passes("run_next_tokens") as steps,
        counted_passes("run_whole_sequences") as passes,
    ):
        ours = errors()
    with fast.disabled():
        theirs = errors()
    assert len(steps) >= 23
    assert len(passes) >= 1
    assert all(a <= 1.3 * b for a, b in zip(ours, theirs, strict=True))
