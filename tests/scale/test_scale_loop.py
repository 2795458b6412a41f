"""The training loop at scale: one process and many train one model, and go on from each other."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from hf_tformer import TformerDecoderConfig
from hf_tformer.plan import training_flops
from hf_tformer.scale import (
    Launch,
    Layout,
    Meter,
    RowOrder,
    Settings,
    TrainingError,
    choose_layout,
    read_launch,
    rows_of_each,
)
from hf_tformer.scale.step import clip_gradients, cosine, make_optimizer
from support import scale_programs
from support.paths import ROOT

FORKS = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
LETTERS = torch.randint(97, 123, (1100,), generator=torch.Generator().manual_seed(0))


# The order of rows


@given(rows=st.integers(1, 50), share=st.floats(0.01, 1), seed=st.integers(0, 2**40))
def test_an_epoch_takes_each_row_once_and_the_next_in_another_order(rows, share, seed):
    order = RowOrder(rows, max(1, int(rows * share)), seed)
    length = order.steps_per_epoch
    epochs = [[row for n in range(length) for row in order.step(e * length + n)] for e in (0, 1)]
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == length * order.rows_per_step
        assert set(epoch) <= set(range(rows))
    if rows > 20:
        assert epochs[0] != epochs[1]
    again = RowOrder(order.rows, order.rows_per_step, seed)
    assert again.step(2 * length) == order.step(2 * length)


def test_a_step_that_no_epoch_can_fill_is_refused():
    with pytest.raises(TrainingError, match="there are 3 rows and a step takes 4: give more text"):
        RowOrder(3, 4, 0)


# Layouts

SHARDED = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "WORLD_SIZE": "8"}
SIZES = {
    "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
    "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2",
    "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2",
    "PARALLELISM_CONFIG_TP_SIZE": "2",
}
LAUNCHES = {
    "torchrun": ({"WORLD_SIZE": "8"}, Launch()),
    "shards": (SHARDED, Launch(1, 8, 1)),
    "sizes": ({**SHARDED, **SIZES}, Launch(2, 2, 2)),
    "bf16": ({"ACCELERATE_MIXED_PRECISION": "bf16"}, Launch(bf16=True)),
    "compile": ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, Launch(compile=True)),
    "activations": (
        {**SHARDED, "FSDP_ACTIVATION_CHECKPOINTING": "true"},
        Launch(1, 8, 1, activation_checkpointing=True),
    ),
}


@pytest.mark.parametrize(("environment", "launch"), LAUNCHES.values(), ids=LAUNCHES)
def test_what_accelerate_launch_asks_for_is_followed(monkeypatch, environment, launch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert read_launch() == launch


REFUSED = {
    "half precision": ("ACCELERATE_MIXED_PRECISION", "fp16", "mixed_precision"),
    "compiler": ("ACCELERATE_DYNAMO_BACKEND", "EAGER", "dynamo_backend"),
    "first FSDP": ("FSDP_VERSION", "1", "fsdp_version"),
    "offloading": ("FSDP_OFFLOAD_PARAMS", "true", "fsdp_offload_params"),
    "context parallel": ("PARALLELISM_CONFIG_CP_SIZE", "2", "parallelism_config_cp_size"),
    "DeepSpeed": ("ACCELERATE_USE_DEEPSPEED", "true", "distributed_type"),
}


@pytest.mark.parametrize(("variable", "value", "field"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_followed_is_refused_by_its_field(variable, value, field):
    with pytest.raises(TrainingError, match=f"{field} .* is not supported: give "):
        read_launch({variable: value})


def test_processes_that_flags_leave_over_hold_copies(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert choose_layout(Launch(), None, None, None) == Layout(8)
    assert choose_layout(Launch(), None, 2, 2) == Layout(2, 2, 2)
    assert choose_layout(Launch(1, 8, 1), None, None, None) == Layout(1, 8)
    with pytest.raises(TrainingError, match="take 6 processes, and there are 8"):
        choose_layout(Launch(), None, 3, 2)
    with pytest.raises(TrainingError, match="omit one of them"):
        choose_layout(Launch(1, 8, 1), None, 8, None)


def test_parts_of_a_layer_see_the_same_rows_and_shards_see_others(monkeypatch):
    layout = Layout(replicate=2, shard=2, tensor=2)
    seen = []
    for rank in range(8):
        monkeypatch.setenv("RANK", str(rank))
        seen.append(layout.data_rank)
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows_of_each(8, layout) == 2
    with pytest.raises(TrainingError, match="give a multiple of 4"):
        rows_of_each(6, layout)


def test_what_cannot_be_cut_alike_is_refused():
    odd = TformerDecoderConfig(vocab_size=101, tie_word_embeddings=True)
    with pytest.raises(TrainingError, match=r"vocab_size is 101.*--vocab_multiple 4"):
        Layout(shard=2, tensor=2).refuse(odd)
    for layout in (Layout(shard=2), Layout(tensor=2)):
        layout.refuse(odd)
    Layout(shard=2, tensor=2).refuse(
        TformerDecoderConfig(vocab_size=101, tie_word_embeddings=False)
    )
    heads = {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 60}
    with pytest.raises(TrainingError, match="num_key_value_heads is 3, which 2 tensor parallel"):
        Layout(tensor=2).refuse(TformerDecoderConfig(**heads))
    Layout(tensor=2).refuse(TformerDecoderConfig(**heads, qk_norm="all"))


def test_what_this_transformers_lacks_is_named(monkeypatch):
    @dataclass
    class OlderConfig:
        fsdp_size: int
        tp_size: int
        fsdp_mixed_precision: bool

    monkeypatch.setattr("hf_tformer.scale.layout.DistributedConfig", OlderConfig)
    assert Layout(shard=2).sizes(bf16=False) == OlderConfig(2, 1, False)
    with pytest.raises(TrainingError, match="has no dp_replicate_size: install a later one"):
        Layout(replicate=2, shard=2).sizes(bf16=False)


# A step


def test_the_rate_rises_to_its_peak_and_falls_to_nothing():
    rates = [cosine(step, 20, 4) for step in range(20)]
    assert rates[:5] == sorted(rates[:5])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 0 < rates[0] < rates[4] == 1
    assert 0 < rates[-1] < 0.02


def test_matrices_decay_and_nothing_else():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    groups = make_optimizer(model, Settings(1, 1, 1, 0.1)).param_groups
    decayed = [p for group in groups if group["weight_decay"] for p in group["params"]]
    assert [p.shape for p in decayed] == [(4, 3)]
    assert sum(len(group["params"]) for group in groups) == 4


def test_gradients_are_clipped_to_the_norm_of_all_of_them():
    layer = nn.Linear(3, 4)
    layer(torch.ones(2, 3)).sum().backward()
    before = torch.cat([p.grad.flatten() for p in layer.parameters()])
    assert clip_gradients(layer.parameters(), 0.5).item() == pytest.approx(before.norm().item())
    after = torch.cat([p.grad.flatten() for p in layer.parameters()])
    torch.testing.assert_close(after, before / before.norm() * 0.5, rtol=1e-4, atol=0)


# The meter


def test_utilisation_is_what_the_model_needs_of_what_the_devices_could_do(monkeypatch):
    clock = iter([0.0, 2.0, 5.0, 7.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    config = TformerDecoderConfig(vocab_size=101, hidden_size=32)
    meter = Meter(config, 16, torch.device("cpu"), devices=2, peak_flops=1e6)
    meter.tick(300)  # 2 seconds
    meter.skip()  # 3 seconds for something else
    meter.tick(100)  # 2 seconds
    figures = meter.read()
    assert figures["tokens_per_second"] == 100
    assert figures["mfu"] == pytest.approx(100 * training_flops(config, 16) / 2e6)
    assert figures["memory"] > 1e7


def test_without_a_peak_there_is_no_utilisation():
    meter = Meter(TformerDecoderConfig(vocab_size=101), 16, torch.device("cpu"))
    assert "mfu" not in meter.read()


# The program


def write_letters(folder):
    (folder / "words.txt").write_text("".join(map(chr, LETTERS.tolist())))


def start(folder, *command):
    """From the folder of the tests, whose modules it imports, into another."""
    paths = os.pathsep.join([str(ROOT / "examples"), str(ROOT / "tests"), str(ROOT)])
    run = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def losses_in(text):
    """By step; what a run says again replaces what it said before."""
    said = re.findall(r"step (\d+): loss ([\d.]+), gradient norm ([\d.]+)", text)
    return {int(step): (float(loss), float(norm)) for step, loss, norm in said}


def assert_all_trained_as_one(folder, cases):
    expected = losses_in((folder / "one.log").read_text())
    assert list(expected) == list(range(1, 9))
    assert expected[8][0] < expected[1][0]
    weights = load_file(folder / "one" / "model.safetensors")
    for name in cases:
        found = losses_in((folder / f"{name}.log").read_text())
        assert found.keys() == expected.keys(), name
        for step in expected:
            assert found[step] == pytest.approx(expected[step], rel=1e-4), f"{name}, step {step}"
        saved = load_file(folder / name / "model.safetensors")
        torch.testing.assert_close(saved, weights, rtol=1e-3, atol=1e-4, msg=name)


@FORKS
@pytest.mark.slow
def test_two_processes_train_as_one_and_one_goes_on_where_they_stopped(tmp_path):
    write_letters(tmp_path)
    start(tmp_path, "support.scale_programs", "few")
    assert_all_trained_as_one(tmp_path, scale_programs.FEW)


@FORKS
@pytest.mark.slow
def test_every_layout_trains_as_one_process_and_goes_on_where_another_stopped(tmp_path):
    write_letters(tmp_path)
    start(tmp_path, "support.scale_programs", "all")
    assert_all_trained_as_one(tmp_path, {**scale_programs.FEW, **scale_programs.ALL})


@pytest.mark.slow
def test_accelerate_launch_trains_as_plain_python_by_each_configuration(tmp_path):
    write_letters(tmp_path)
    program = str(ROOT / "examples" / "train_language_model.py")
    flags = [*scale_programs.ALIKE.split(), "--max_steps", "3"]
    expected = None
    for file in sorted((ROOT / "examples" / "accelerate").glob("*.yaml")):
        launch = ["accelerate.commands.launch", "--main_process_port", "0"]
        said = start(
            tmp_path, *launch, "--config_file", str(file), program, *flags, "--output", file.stem
        )
        found = losses_in(said)
        expected = expected or found
        assert list(found) == [1, 2, 3], file.name
        for step in found:
            assert found[step] == pytest.approx(expected[step], rel=1e-4), file.name
