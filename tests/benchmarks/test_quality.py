"""The measurements of quality run to their end, and say so where their data is missing."""

import gzip
import re

import pytest

from benchmarks import quality, quality_translation

GERMAN = [f"ein Hund und {n} Katzen" for n in range(40)]
ENGLISH = [f"a dog and {n} cats" for n in range(40)]
TINY = "--hidden_size 16 --intermediate_size 16 --vocab_size 300 --max_length 24 "


def test_without_its_data_a_measurement_is_skipped_with_a_sentence(tmp_path, capsys):
    for task in quality.DATA:
        assert quality.main([task, "--data", str(tmp_path)]) == 0
        assert f"skipped: {tmp_path} has no " in capsys.readouterr().out


def test_a_language_model_is_measured_on_the_last_tenth_of_the_text(tmp_path, capsys):
    (tmp_path / "tinyshakespeare.txt").write_text("to be or not to be " * 500)
    assert quality.main(["shakespeare", "--data", str(tmp_path), "--steps", "8"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("after 8 steps; nanoGPT: 1.88")
    assert float(last.split()[0]) < 3


@pytest.mark.slow
def test_the_encoder_is_measured_beside_models_that_are_not_smaller(tmp_path, capsys):
    (tmp_path / "tinyshakespeare.txt").write_text("to be or not to be " * 500)
    assert quality.main(["masked", "--data", str(tmp_path), "--steps", "8"]) == 0
    printed = capsys.readouterr().out
    sizes = re.findall(r"^(\w+): ([\d,]+) parameters$", printed, re.MULTILINE)
    sizes = {name: int(number.replace(",", "")) for name, number in sizes}
    assert sizes["ours"] <= sizes["ModernBERT"]
    assert sizes["ours"] <= sizes["BERT"]
    assert "validation loss: ours " in printed.splitlines()[-1]


@pytest.mark.parametrize("task", ["multi30k", pytest.param("t5", marks=pytest.mark.slow)])
def test_both_architectures_see_the_same_batches_and_have_the_same_size(
    task, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(quality_translation, "CPU", quality_translation.CPU + TINY)
    for split in ("train", "val", "test_2016_flickr"):
        for language, lines in (("de", GERMAN), ("en", ENGLISH)):
            with gzip.open(tmp_path / f"multi30k.{split}.{language}.gz", "wt") as file:
                file.write("\n".join(lines) + "\n")
    seen = watch_batches(monkeypatch)
    quality.main([task, "--data", str(tmp_path), "--steps", "2"])
    printed = capsys.readouterr().out
    assert len(seen) == 4
    assert seen[:2] == seen[2:]
    sizes = [float(line.split()[1]) for line in printed.splitlines() if "M parameters" in line]
    assert 0.9 * sizes[1] <= sizes[0] <= sizes[1]  # ours has no more to learn with
    assert "BLEU (sacreBLEU, test_2016_flickr): ours" in printed


def watch_batches(monkeypatch):
    """What the models are trained on, in order."""
    from transformers import Seq2SeqTrainer

    step, seen = Seq2SeqTrainer.training_step, []

    def training_step(self, model, inputs, *args):
        seen.append(inputs["input_ids"].tolist())
        return step(self, model, inputs, *args)

    monkeypatch.setattr(Seq2SeqTrainer, "training_step", training_step)
    return seen
