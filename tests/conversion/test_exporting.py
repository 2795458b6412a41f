"""What every export to a runtime promises, tried with a runtime that is made up: nothing is kept
that is not proven, and what cannot be served is refused before anything is written.
"""

import os
import re
import signal

import pytest
import torch

import hf_tformer
from conversion import ConversionError, export_checkpoint, open_exported
from conversion.command import main
from conversion.runtimes.registry import RUNTIMES
from conversion.runtimes.runtime import Running, Runtime
from support.families import DECODER, MIXTURE, SEQ2SEQ
from support.leaves import backend_of


def one_rare_token_off(logits):
    logits[0, logits[0].argmin()] -= 50  # rare before and rarer now
    return logits


LOGITS_OFF = {
    "logits": lambda logits: logits + 0.01,
    "one token": one_rare_token_off,
    "noise": lambda logits: logits + 50 * torch.randn(logits.shape),
}


class Ours(Running):
    """Our own model, as if it were a runtime."""

    def __init__(self, source, fault):
        self.loaded = source.load_model()
        self.tokens_off = fault == "text"
        self.change = LOGITS_OFF.get(fault, lambda logits: logits)

    def logits(self, batch):
        return self.change(self.loaded.ask(self.loaded.model, batch))

    def generate(self, prompts, new_tokens, num_beams):
        from conversion.runtimes.proof import generate

        if num_beams > 1:
            return None
        sequences = generate(self.loaded.model, prompts, new_tokens, 1).sequences
        sequences[0][0] += self.tokens_off
        return sequences


class Made(Runtime):
    """A runtime that is asked for whatever goes wrong."""

    name, title, packages, extra, library_name = "made", "Made", (), "made", "made"
    tolerance = {"float32": 1e-4, "int8": 0.5}  # noqa: RUF012
    fault = None

    def refuse(self, source):
        if source.config.is_encoder_decoder:
            raise ConversionError("encoder-decoders are not served: choose another")

    def write(self, source, folder):
        (folder / "weights.made").write_bytes(b"1")
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "cannot write":
            raise NotImplementedError("no such operator")
        if self.fault == "full":
            raise OSError(28, "No space left on device", str(folder / "weights.made"))

    def open(self, source, folder):
        if self.fault == "cannot run":
            raise RuntimeError("no such kernel")
        return Ours(source, self.fault)

    def program(self, source, name):
        return f'open("{name}/weights.made")'


@pytest.fixture
def made(monkeypatch):
    runtime = Made()
    monkeypatch.setitem(RUNTIMES, "made", runtime)
    return runtime


@pytest.fixture
def ours(tmp_path):
    DECODER.build().save_pretrained(tmp_path / "ours")
    return tmp_path / "ours"


def left_beside(ours):
    return sorted(path.name for path in ours.parent.iterdir() if path != ours)


def test_an_export_says_what_was_proven_and_how_it_is_opened(made, ours, tmp_path, capsys):
    assert main(["export", str(ours), str(tmp_path / "out"), "--to", "made"]) == 0
    told = capsys.readouterr().out
    card = (tmp_path / "out" / "README.md").read_text()
    for sentence in ("the largest difference was 0.0e+00", "generated greedily, 3 have the tokens"):
        assert sentence in told
        assert sentence in card
    assert 'open("out/weights.made")' in card
    assert "library_name: made" in card
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "weights.made",
    }
    assert "auto_map" not in (tmp_path / "out" / "config.json").read_text()


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("logits", "the outputs of Made differ by 1.0e-02"),
        ("text", "generates other tokens than generate"),
        ("full", "the disk was full"),
        ("cannot write", "cannot be made from this model (NotImplementedError: no such operator)"),
        ("cannot run", "were made, but do not run (RuntimeError: no such kernel)"),
    ],
)
def test_what_is_not_proven_is_not_kept(made, ours, tmp_path, capsys, fault, sentence):
    made.fault = fault
    assert main(["export", str(ours), str(tmp_path / "new" / "out"), "--to", "made"]) == 1
    assert sentence in capsys.readouterr().err
    assert left_beside(ours) == []


def test_numbers_that_are_rounded_may_be_as_far_as_they_say(made, ours, tmp_path):
    made.fault = "text"
    done = export_checkpoint(ours, tmp_path / "out", to="made", dtype="int8")
    assert done.proof.equal_texts[1][1] == 3
    assert done.dtype == "int8"


def test_one_rare_token_does_not_condemn_few_bits_and_what_changed_is_shown(made, ours, tmp_path):
    made.fault = "one token"
    done = export_checkpoint(ours, tmp_path / "out", to="made", dtype="int8")
    assert done.proof.difference > 40
    assert done.proof.few_bits.usual < 1e-4
    assert done.proof.few_bits.same_best == 1
    card = (tmp_path / "out" / "README.md").read_text()
    assert "99 of 100 numbers differ by at most" in card
    assert "same in 100% of the places" in card


def test_the_first_output_that_few_bits_change_is_shown(made, ours, tmp_path):
    made.fault = "text"
    export_checkpoint(ours, tmp_path / "out", to="made", dtype="int8")
    card = (tmp_path / "out" / "README.md").read_text()
    assert re.search(r"has token \d+ in place 1, where `generate\(\)` has \d+", card)


@pytest.mark.parametrize(("fault", "dtype"), [("noise", "int8"), ("one token", "float32")])
def test_other_logits_are_refused_with_few_bits_and_any_other_one_without(
    made, ours, tmp_path, fault, dtype
):
    made.fault = fault
    with pytest.raises(ConversionError, match="more than rounding explains"):
        export_checkpoint(ours, tmp_path / "out", to="made", dtype=dtype)


def test_the_refusal_of_eight_bits_names_the_remedy_of_ctranslate2():
    runtime = RUNTIMES["ctranslate2"]
    assert "set CT2_USE_MKL=1" in runtime.advice("int8")
    assert runtime.advice("float32") == "please report this configuration"


def test_a_killed_export_leaves_nothing_that_the_next_does_not_remove(made, ours, tmp_path):
    made.fault = "killed"
    if os.fork() == 0:
        export_checkpoint(ours, tmp_path / "out", to="made")
    _, status = os.wait()
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert all(name.endswith(".partial") for name in left_beside(ours))
    made.fault = None
    export_checkpoint(ours, tmp_path / "out", to="made")
    assert left_beside(ours) == ["out"]


def test_without_a_proof_the_card_says_so(made, ours, tmp_path, capsys):
    made.fault = "logits"
    command = ["export", str(ours), str(tmp_path / "out"), "--to", "made", "--no-verify"]
    assert main(command) == 0
    assert "were not compared" in capsys.readouterr().out
    assert "were not compared" in (tmp_path / "out" / "README.md").read_text()


def refused(src, dst, **how):
    with pytest.raises(ConversionError) as refusal:
        export_checkpoint(src, dst, **how)
    assert not dst.parent.joinpath("out").exists()
    return str(refusal.value)


def test_what_a_runtime_cannot_serve_is_refused_before_anything_is_written(made, ours, tmp_path):
    out = tmp_path / "out"
    assert "dtype is 'int3', which made files do not hold: choose one of float32, int8" in refused(
        ours, out, to="made", dtype="int3"
    )
    SEQ2SEQ.build().save_pretrained(tmp_path / "seq2seq")
    assert "encoder-decoders are not served" in refused(tmp_path / "seq2seq", out, to="made")
    (tmp_path / "empty").mkdir()
    assert "config.json" in refused(tmp_path / "empty", out, to="made")
    assert "is the source of the conversion" in refused(ours, ours, to="made")


@pytest.mark.parametrize("runtime", ["ctranslate2", "executorch", "gguf"])
def test_experts_are_refused_where_the_runtime_is_not_told_of_them(runtime, tmp_path):
    MIXTURE.build().save_pretrained(tmp_path / "mixture")
    sentence = refused(tmp_path / "mixture", tmp_path / "out", to=runtime)
    assert "mixture is a mixture of experts" in sentence
    assert "export it to onnx or openvino" in sentence


def test_a_missing_package_is_named_with_the_extra_that_brings_it(made, ours, tmp_path):
    made.packages = ("not_there_at_all",)
    sentence = refused(ours, tmp_path / "out", to="made")
    assert "not_there_at_all must be installed" in sentence
    assert "pip install 'hf-tformer[made]'" in sentence


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_that_is_not_installed_is_no_crash(name, ours, tmp_path):
    runtime = RUNTIMES[name]
    runtime = type("Missing", (type(runtime),), {"packages": ("not_there_at_all",)})()
    with pytest.raises(ConversionError, match=rf"hf-tformer\[{runtime.extra}\]"):
        runtime.refuse_missing_packages()
    assert all(tolerance > 0 for tolerance in runtime.tolerance.values())


def test_a_folder_that_was_not_exported_is_not_opened(ours):
    with pytest.raises(ConversionError, match="give a folder that was exported"):
        open_exported(ours)


def test_a_decoder_is_exported_with_the_head_that_it_has(made, tmp_path):
    head = hf_tformer.TformerDecoderForTokenClassification
    DECODER.build(backend_of({}), head, num_labels=5).save_pretrained(tmp_path / "ours")
    done = export_checkpoint(tmp_path / "ours", tmp_path / "out", to="made")
    assert done.proof.equal_texts == {}, "it writes nothing"
    assert "token-classification" in (tmp_path / "out" / "README.md").read_text()
