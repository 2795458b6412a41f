"""A conversion writes all or nothing, says why, and needs little memory for it."""

import errno
import io
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from functools import partial
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import conversion.engine.checkpoints
import conversion.engine.convert
import conversion.engine.destination
import conversion.engine.models
from conversion import import_checkpoint
from conversion.command import main
from conversion.engine.checkpoints import write_checkpoint
from conversion.engine.destination import appearing
from support.converting import CASES, assert_refused, save_theirs

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
    monkeypatch.setattr(conversion.engine.convert, "write_checkpoint", None)  # is not reached
    assert_refused(tmp_path, str(tmp_path), "has room for", "but the weights need")


def test_rests_of_a_killed_conversion_make_room_for_the_next(tmp_path, llama, monkeypatch):
    rest = tmp_path / ".other-01234567.partial"
    rest.mkdir()
    (rest / "shard-0.safetensors").write_bytes(b"half")
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: Usage(10**9, 0, 0 if rest.exists() else 10**9)
    )
    import_checkpoint(llama, tmp_path / "ours", verify=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "theirs"]


def test_a_conversion_that_goes_on_beside_is_left_alone(tmp_path, llama):
    with appearing(tmp_path / "other", llama, 0) as partial:
        (partial / "file").write_text("mine")
        import_checkpoint(llama, tmp_path / "ours", verify=False)
    assert (tmp_path / "other" / "file").read_text() == "mine"


def test_half_the_room_is_needed_for_half_the_precision(tmp_path, llama, monkeypatch):
    weights = (llama / "model.safetensors").stat().st_size
    usage = Usage(10**9, 10**9, weights * 3 // 4)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    import_checkpoint(llama, tmp_path / "ours", dtype="float16", verify=False)
    assert (tmp_path / "ours" / "model.safetensors").stat().st_size < usage.free


def test_a_disk_that_fills_at_the_second_shard_is_told(tmp_path, llama, monkeypatch):
    real, written = conversion.engine.checkpoints.save_file, []

    def save_file(tensors, path, **options):
        if written:
            Path(path).write_bytes(b"half a shard")
            raise FULL
        written.append(path)
        real(tensors, path, **options)

    small = partial(write_checkpoint, shard_bytes=20_000)
    monkeypatch.setattr(conversion.engine.convert, "write_checkpoint", small)
    monkeypatch.setattr(conversion.engine.checkpoints, "save_file", save_file)
    assert_refused(tmp_path, "the disk was full", str(tmp_path / "ours"), "whose weights need")
    assert len(written) == 1


def test_a_disk_that_fills_at_the_configuration_is_told(tmp_path, llama, monkeypatch, capsys):
    def save_description(self, model, folder):
        raise FULL

    monkeypatch.setattr(conversion.engine.models.Library, "save_description", save_description)
    deep = tmp_path / "new/folders/ours"
    assert main(["import", str(llama), str(deep)]) == 1
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "the disk was full" in told
    assert not (tmp_path / "new").exists()


def test_what_safetensors_says_of_a_full_disk_is_understood(tmp_path, llama, monkeypatch):
    def save_file(tensors, path, **options):
        words = "Error while serializing: I/O error: No space left on device (os error 28)"
        raise conversion.engine.checkpoints.SafetensorError(words)

    monkeypatch.setattr(conversion.engine.checkpoints, "save_file", save_file)
    assert_refused(tmp_path, "the disk was full")


def test_a_place_that_may_not_be_written_to_is_told(tmp_path, llama, monkeypatch):
    def mkdir(path, *args, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(conversion.engine.destination.Path, "mkdir", mkdir)
    assert_refused(tmp_path, "could not be written (Permission denied)", str(tmp_path))


def test_a_source_that_may_not_be_read_is_not_blamed_on_the_place(tmp_path, llama, monkeypatch):
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(llama / "config.json"))

    def save_description(self, model, folder):
        raise error

    monkeypatch.setattr(conversion.engine.models.Library, "save_description", save_description)
    with pytest.raises(PermissionError) as caught:
        import_checkpoint(llama, tmp_path / "ours")
    assert caught.value is error
    assert sorted(tmp_path.iterdir()) == [llama]


PLACES = {
    "SRC itself": ("theirs", "is the source of the conversion"),
    "a link to SRC": ("link", "is the source of the conversion"),
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


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stderr", "disabled", "shown"),
    [(Terminal, None, True), (Terminal, True, False), (io.StringIO, None, False)],
)
def test_a_bar_counts_tensors_where_a_terminal_looks(
    stderr, disabled, shown, tmp_path, llama, monkeypatch
):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", disabled)
    monkeypatch.setattr(sys, "stderr", stderr())
    assert main(["import", str(llama), str(tmp_path / "ours"), "--no-verify"]) == 0
    assert ("tensors" in sys.stderr.getvalue()) is shown


def test_a_function_shows_a_bar_only_if_asked(tmp_path, llama, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    import_checkpoint(llama, tmp_path / "silent", verify=False)
    assert sys.stderr.getvalue() == ""
    import_checkpoint(llama, tmp_path / "shown", verify=False, progress=True)
    assert "tensors" in sys.stderr.getvalue()


# Memory

MEASURED = """
import re, sys
from functools import partial
from pathlib import Path
import conversion.engine.convert
from conversion import export_checkpoint, import_checkpoint
from conversion.engine.checkpoints import write_checkpoint

shard_bytes, folder = int(sys.argv[1]), Path(sys.argv[2])
conversion.engine.convert.write_checkpoint = partial(write_checkpoint, shard_bytes=shard_bytes)

def bytes_of(field):
    status = Path("/proc/self/status").read_text()
    return int(re.search(field + r":\\s*(\\d+)", status)[1]) * 1024

def there_and_back(size, format):
    given, ours, back = (folder / f"{size} {format}{end}" for end in ("", " ours", " back"))
    yield partial(import_checkpoint, given, ours, verify=False)
    yield partial(export_checkpoint, ours, back, format, verify=False)

for size in ("small", "large"):  # what is imported and compiled at the first use is no matter
    for format in ("llama", "gpt2"):
        for step in there_and_back(size, format):
            Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
            before = bytes_of("VmRSS")
            step()
            peak = bytes_of("VmHWM") - before
            if size == "large":
                print(peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measured as Linux tells it")
def test_the_peak_of_memory_is_one_shard_and_little_more_than_one_tensor(tmp_path):
    """Without the proof, which loads the models."""
    heads = {"vocab_size": 8000, "bos_token_id": 1, "eos_token_id": 2, "num_attention_heads": 8}
    for size, width, layers in (("small", 64, 2), ("large", 768, 7)):
        sizes = {"hidden_size": width, "num_hidden_layers": layers}
        llama = LlamaForCausalLM(LlamaConfig(**heads, **sizes, intermediate_size=2 * width))
        gpt2 = GPT2LMHeadModel(GPT2Config(**heads, **sizes, n_positions=8))
        llama.save_pretrained(tmp_path / f"{size} llama")
        gpt2.save_pretrained(tmp_path / f"{size} gpt2")
    shard = 40 * 10**6
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, str(shard), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    peaks = list(map(int, run.stdout.split()))
    assert len(peaks) == 4, run.stderr
    limit = shard + 1.3 * 8000 * 768 * 4  # the embeddings
    assert max(peaks) < limit, (peaks, limit)
    assert all(sum(t.nbytes for t in m.parameters()) > 2.5 * limit for m in (llama, gpt2))


def test_a_fused_tensor_is_built_once():
    from conversion.engine.transforms import Split

    parts = tuple(torch.rand(3, 5) for _ in range(3))
    (fused,) = Split(3, transposed=True).inverse(parts, None)
    assert fused.is_contiguous()
    assert torch.equal(fused, torch.cat(parts).t())


def test_headers_tell_the_bytes_of_every_type(tmp_path):
    types = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn)
    tensors = {str(dtype): torch.zeros(3, 5).to(dtype) for dtype in types}
    write_checkpoint(tmp_path, iter(tensors.items()))
    checkpoint = conversion.engine.checkpoints.open_checkpoint(tmp_path)
    assert {n: checkpoint.nbytes(n) for n in tensors} == {n: t.nbytes for n, t in tensors.items()}
