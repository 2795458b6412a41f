"""Work on files that the system holds in memory: loading, importing, converting."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from conversion import import_checkpoint
from hf_tformer import TformerDecoderForCausalLM

from .decoding import llama_pair, prompt
from .measure import OURS, ROOT, Run, Settings, Workload, Workloads


def loading(settings: Settings) -> Workloads:
    with tempfile.TemporaryDirectory() as folder:  # kept while this task is measured
        theirs, ours, ids = save(Path(folder), settings)
        import_checkpoint(theirs, ours, verify=False)
        yield Workload(
            f"from_pretrained, {settings.pick('100M parameters', 'toy')}",
            {
                OURS: partial(opening, TformerDecoderForCausalLM, ours, ids),
                "LlamaForCausalLM": partial(opening, LlamaForCausalLM, theirs, ids),
            },
        )
        yield Workload(
            f"the first token of a fresh process, {settings.pick('100M parameters', 'toy')}",
            {
                OURS: partial(first_token, TformerDecoderForCausalLM, ours, ids),
                "LlamaForCausalLM": partial(first_token, LlamaForCausalLM, theirs, ids),
            },
            {"LlamaForCausalLM": 0.97},
        )
    yield Workload(
        "import in a fresh process",
        {
            OURS: partial(importing, "hf_tformer"),
            "import transformers": partial(importing, "transformers"),
        },
        ceiling=0.3,
    )


def save(folder: Path, settings: Settings) -> tuple[Path, Path, torch.Tensor]:
    """Save a Llama; return its folder, the one for ours, and token ids to compare them on."""
    pair = llama_pair(settings, 125, num_hidden_layers=settings.pick(12, 2))
    pair.theirs.save_pretrained(folder / "theirs")
    return folder / "theirs", folder / "ours", prompt(pair, 2, 9)["input_ids"]


def opening(model_class: type, folder: Path, ids: torch.Tensor) -> Run:
    return Run(lambda: model_class.from_pretrained(folder), lambda model: logits(model, ids))


@torch.no_grad()
def logits(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"logits": model.eval()(input_ids=ids).logits}


FIRST_TOKEN = """
import sys, torch
from {module} import {model_class}
model = {model_class}.from_pretrained(sys.argv[1]).eval()
ids = torch.tensor([[int(word) for word in sys.argv[2].split()]])
print(model.generate(ids, max_new_tokens=1, do_sample=False)[0, -1].item())
"""


def first_token(model_class: type, folder: Path, ids: torch.Tensor) -> Run:
    """Return a run that starts a process, which imports, opens, reads a prompt and writes."""
    named = {"module": model_class.__module__.split(".")[0], "model_class": model_class.__name__}
    words = " ".join(map(str, ids[0].tolist()))
    command = [sys.executable, "-c", FIRST_TOKEN.format(**named), str(folder), words]
    return started(command)


def started(command: list[str]) -> Run:
    """Return a run that starts a process, whose outcome is what it writes."""
    start = partial(subprocess.run, command, cwd=ROOT, check=True, capture_output=True, text=True)
    return Run(start, lambda process: process.stdout.strip())


def importing(package: str) -> Run:
    command = [sys.executable, "-c", f"import {package}"]
    return Run(lambda: subprocess.run(command, cwd=ROOT, check=True), lambda run: run.returncode)


def conversion(settings: Settings) -> Workloads:
    """Convert a checkpoint, which may take twice as long as copying its files."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, _, ids = save(Path(folder), settings)
        convert = partial(import_checkpoint, verify=False)
        size = sum(file.stat().st_size for file in theirs.iterdir())
        yield Workload(
            f"from Llama, {size / 1e6:.0f} MB, without the proof",
            {
                OURS: partial(writing, TformerDecoderForCausalLM, convert, theirs, ids),
                "copying the folder": partial(
                    writing, LlamaForCausalLM, shutil.copytree, theirs, ids
                ),
            },
            {"copying the folder": 0.5},
        )


def writing(
    model_class: type, write: Callable[[Path, Path], object], source: Path, ids: torch.Tensor
) -> Run:
    """Write a folder that is not there yet, in each call."""
    parent = tempfile.TemporaryDirectory()
    target = Path(parent.name) / "target"

    run = Run(
        lambda: write(source, target),
        lambda _: logits(model_class.from_pretrained(target), ids),
        before=lambda: shutil.rmtree(target, ignore_errors=True),
    )
    run.parent = parent  # removed with the run
    return run
