"""From the disk, which the system holds in memory: loading, importing, converting."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from conversion import import_checkpoint
from hf_tformer import TformerDecoderForCausalLM

from .decoding import llama_pair
from .measure import OURS, Run, Workload
from .memory import ROOT
from .peers import random_ids


def loading(settings):
    with tempfile.TemporaryDirectory() as folder:  # kept while this task is measured
        theirs, ours, ids = save(Path(folder), settings)
        import_checkpoint(theirs, ours, verify=False)
        yield Workload(
            f"from_pretrained, {settings.pick('100M parameters', 'toy')}",
            {
                OURS: lambda: opening(TformerDecoderForCausalLM, ours, ids),
                "LlamaForCausalLM": lambda: opening(LlamaForCausalLM, theirs, ids),
            },
        )
    yield Workload(
        "import in a fresh process",
        {
            OURS: lambda: importing("hf_tformer"),
            "import transformers": lambda: importing("transformers"),
        },
        ceiling=0.3,
    )


def save(folder, settings):
    """A Llama in a folder, the place where ours is to lie, and a text to compare them on."""
    pair = llama_pair(settings, 125, num_hidden_layers=settings.pick(12, 2))
    pair.theirs.save_pretrained(folder / "theirs")
    return folder / "theirs", folder / "ours", random_ids(pair.sizes["vocab_size"], 2, 9, settings)


def opening(model_class, folder, ids):
    return Run(lambda: model_class.from_pretrained(folder), lambda model: logits(model, ids))


@torch.no_grad()
def logits(model, ids):
    return {"logits": model.eval()(input_ids=ids.to(model.device)).logits}


def importing(package):
    command = [sys.executable, "-c", f"import {package}"]
    return Run(lambda: subprocess.run(command, cwd=ROOT, check=True), lambda run: run.returncode)


def conversion(settings):
    """Nothing can be faster than copying the files; a conversion may take twice as long."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, _, ids = save(Path(folder), settings)
        size = sum(file.stat().st_size for file in theirs.iterdir())
        yield Workload(
            f"from Llama, {size / 1e6:.0f} MB, without the proof",
            {
                OURS: lambda: writing(
                    TformerDecoderForCausalLM,
                    lambda target: import_checkpoint(theirs, target, verify=False),
                    ids,
                ),
                "copying the folder": lambda: writing(
                    LlamaForCausalLM, lambda target: shutil.copytree(theirs, target), ids
                ),
            },
            {"copying the folder": 0.5},
        )


def writing(model_class, write, ids):
    """Each call writes a folder that is not there yet."""
    parent = tempfile.TemporaryDirectory()
    target = Path(parent.name) / "target"

    def call():
        write(target)
        return target

    def outcome(_):
        return logits(model_class.from_pretrained(target), ids)

    run = Run(call, outcome, before=lambda: shutil.rmtree(target, ignore_errors=True))
    run.parent = parent  # removed with the run
    return run
