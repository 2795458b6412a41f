"""A conversion writes all or nothing, says why, and needs little memory for it."""

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from functools import partial
from pathlib import Path

import pytest
import torch
from converting import CASES, assert_refused, save_theirs

import conversion.checkpoints
import conversion.convert
import conversion.destination
from conversion import import_checkpoint
from conversion.__main__ import main
from conversion.checkpoints import write_checkpoint

Usage = namedtuple("Usage", ["total", "used", "free"])
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def llama(tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    return tmp_path / "theirs"


def test_too_little_room_is_told_before_anything_is_written(tmp_path, llama, monkeypatch):
    weights = (llama / "model.safetensors").stat().st_size
    usage = Usage(10**9, 10**9, weights // 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(conversion.convert, "write_checkpoint", None)  # is not reached
    assert_refused(tmp_path, str(tmp_path), "has room for", "but the weights need")


def test_half_the_room_is_needed_for_half_the_precision(tmp_path, llama, monkeypatch):
    weights = (llama / "model.safetensors").stat().st_size
    usage = Usage(10**9, 10**9, weights * 3 // 4)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    import_checkpoint(llama, tmp_path / "ours", dtype="float16", verify=False)


def test_a_disk_that_fills_at_the_second_shard_is_told(tmp_path, llama, monkeypatch):
    real, written = conversion.checkpoints.save_file, []

    def save_file(tensors, path, **options):
        if written:
            Path(path).write_bytes(b"half a shard")
            raise FULL
        written.append(path)
        real(tensors, path, **options)

    small = partial(write_checkpoint, shard_bytes=20_000)
    monkeypatch.setattr(conversion.convert, "write_checkpoint", small)
    monkeypatch.setattr(conversion.checkpoints, "save_file", save_file)
    assert_refused(tmp_path, "the disk was full", str(tmp_path / "ours"), "whose weights need")
    assert len(written) == 1


def test_a_disk_that_fills_at_the_configuration_is_told(tmp_path, llama, monkeypatch, capsys):
    def save_description(model, folder):
        raise FULL

    monkeypatch.setattr(conversion.convert, "save_description", save_description)
    deep = tmp_path / "new/folders/ours"
    assert main(["import", str(llama), str(deep)]) == 1
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "the disk was full" in told
    assert not (tmp_path / "new").exists()


def test_what_safetensors_says_of_a_full_disk_is_understood(tmp_path, llama, monkeypatch):
    def save_file(tensors, path, **options):
        words = "Error while serializing: I/O error: No space left on device (os error 28)"
        raise conversion.checkpoints.SafetensorError(words)

    monkeypatch.setattr(conversion.checkpoints, "save_file", save_file)
    assert_refused(tmp_path, "the disk was full")


def test_a_place_that_may_not_be_written_to_is_told(tmp_path, llama, monkeypatch):
    def mkdir(path, *args, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(conversion.destination.Path, "mkdir", mkdir)
    assert_refused(tmp_path, "could not be written (Permission denied)", str(tmp_path))


def test_a_source_that_may_not_be_read_is_not_blamed_on_the_place(tmp_path, llama, monkeypatch):
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(llama / "config.json"))

    def save_description(model, folder):
        raise error

    monkeypatch.setattr(conversion.convert, "save_description", save_description)
    with pytest.raises(PermissionError) as caught:
        import_checkpoint(llama, tmp_path / "ours")
    assert caught.value is error
    assert sorted(tmp_path.iterdir()) == [llama]


PLACES = {
    "SRC itself": ("theirs", "is what is to be converted"),
    "a link to SRC": ("link", "is what is to be converted"),
    "inside SRC": ("theirs/new/ours", "lies inside"),
    "a file": ("file", "exists"),
    "below a file": ("file/ours", "is a file"),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_place_that_cannot_be_is_refused(case, tmp_path, llama):
    place, words = PLACES[case]
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(llama)
    before = sorted(tmp_path.rglob("*"))
    assert_refused(tmp_path, words, run=lambda src, dst: import_checkpoint(src, tmp_path / place))
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_and_one_that_is_not_there_yet_are_filled(tmp_path, llama):
    (tmp_path / "empty").mkdir()
    for place in ("empty", "not/yet/there"):
        import_checkpoint(llama, tmp_path / place, verify=False)
        assert (tmp_path / place / "model.safetensors").is_file()


# A bar is for people


@pytest.mark.parametrize(
    ("terminal", "switch", "shown"), [(True, "0", True), (True, "1", False), (False, "0", False)]
)
def test_a_bar_counts_tensors_where_a_terminal_looks(terminal, switch, shown, tmp_path, llama):
    arguments = [sys.executable, "-m", "conversion", "import", str(llama), str(tmp_path / "ours")]
    reading, writing = os.openpty() if terminal else os.pipe()
    run = subprocess.run(
        [*arguments, "--no-verify"],
        stderr=writing,
        stdout=subprocess.PIPE,
        env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": switch, "TERM": "xterm"},
        check=True,
    )
    os.set_blocking(reading, False)
    try:
        told = os.read(reading, 10**5)
    except BlockingIOError:
        told = b""
    os.close(reading)
    os.close(writing)
    assert (b"tensors" in told) is shown, told
    assert b"tensors" in run.stdout


# Memory

MEASURED = """
import re, sys
from functools import partial
from pathlib import Path
import conversion.convert
from conversion.checkpoints import write_checkpoint

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

warm, large, out = sys.argv[1:4]
small_shards = partial(write_checkpoint, shard_bytes=int(sys.argv[4]))
conversion.convert.write_checkpoint = small_shards
conversion.import_checkpoint(warm, out + "/warm", verify=False)
before = peak()
conversion.import_checkpoint(large, out + "/large", verify=False)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="measured as Linux tells it")
@pytest.mark.parametrize("format", ["llama", "gpt2"])
def test_the_peak_of_memory_is_one_shard_and_little_more_than_one_tensor(format, tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    def save(layers, width, folder):
        if format == "llama":
            config = LlamaConfig(
                vocab_size=4000,
                hidden_size=width,
                intermediate_size=2 * width,
                num_hidden_layers=layers,
                num_attention_heads=8,
            )
            model = LlamaForCausalLM(config)
        else:
            config = GPT2Config(
                vocab_size=4000, n_embd=width, n_layer=layers, n_head=8, n_positions=8
            )
            model = GPT2LMHeadModel(config)
        model.save_pretrained(folder)
        return [tensor.nbytes for tensor in model.state_dict().values()]

    save(2, 64, tmp_path / "warm")
    sizes = save(12, 1024 if format == "llama" else 768, tmp_path / "large")
    shard = 20 * 10**6
    places = [str(tmp_path / name) for name in ("warm", "large", "out")]
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, *places, str(shard)],
        capture_output=True,
        text=True,
        check=True,
    )
    limit = shard + 1.3 * max(sizes)
    assert sum(sizes) > 6 * limit
    assert int(run.stdout.split()[-1]) < limit, (run.stdout, limit)


def test_a_fused_tensor_is_built_once():
    from conversion.transforms import Split

    parts = tuple(torch.rand(3, 5) for _ in range(3))
    (fused,) = Split(3, transposed=True).inverse(parts, None)
    assert fused.is_contiguous()
    assert torch.equal(fused, torch.cat(parts).t())


def test_headers_tell_the_bytes_of_every_type(tmp_path):
    types = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn)
    tensors = {str(dtype): torch.zeros(3, 5).to(dtype) for dtype in types}
    write_checkpoint(tmp_path, iter(tensors.items()))
    checkpoint = conversion.checkpoints.open_checkpoint(tmp_path)
    assert {n: checkpoint.nbytes(n) for n in tensors} == {n: t.nbytes for n, t in tensors.items()}
