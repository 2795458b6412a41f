"""The wheel is what users get: built, installed into a fresh environment, and used from there.

It is installed once, away from the checkout, with the versions in constraints/tested.txt;
nothing of the checkout can be imported in it.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import hf_tformer
from support.families import DECODER
from support.paths import ROOT

pytestmark = pytest.mark.wheel
MOST_BYTES = 800_000  # of the sdist, and of the wheel, which is 0.75 MB with its tables


def run(*words, cwd, status=0, **environment):
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def wheel(place):
    """Built from a copy, so that nothing is left behind in the checkout."""
    source = place / "source"
    skipped = shutil.ignore_patterns(
        ".*", "*.egg-info", "build", "dist", "tests", "__pycache__", "node_modules"
    )
    shutil.copytree(ROOT, source, ignore=skipped)
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place / "dist", source)
    run(sys.executable, *words, cwd=place)
    shutil.rmtree(source)
    (built,) = (place / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(place, wheel):
    """The folder of the commands of an environment that has the wheel and no extra."""
    venv.create(place / "environment", with_pip=True)
    commands = place / "environment" / ("Scripts" if os.name == "nt" else "bin")
    constraint = ("--constraint", ROOT / "constraints/tested.txt")
    words = ("-m", "pip", "install", "--quiet", *constraint, wheel)
    run(commands / "python", *words, cwd=place)
    return commands


@pytest.fixture(scope="module")
def model(place):
    DECODER.build().save_pretrained(place / "model")
    return place / "model"


def scripts(wheel):
    """The commands that the wheel brings."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = [name for name in file.namelist() if name.endswith("entry_points.txt")]
        parser = ConfigParser()
        parser.read_string(file.read(name).decode())
    return sorted(parser["console_scripts"])


def test_the_wheel_holds_the_packages_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "hf_tformer",
        "conversion",
    }
    kept = {name for name in names if name.endswith(".py")}
    there = {
        str(path.relative_to(ROOT))
        for package in ("hf_tformer", "conversion")
        for path in (ROOT / package).rglob("*.py")
    }
    assert kept == there
    assert f"-{hf_tformer.__version__}-" in wheel.name


def contents(archive):
    """Name → bytes, of the files in an sdist or a wheel."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            return {name: file.read(name) for name in file.namelist()}
    with tarfile.open(archive) as file:
        entries = [entry for entry in file.getmembers() if entry.isfile()]
        return {entry.name: file.extractfile(entry).read() for entry in entries}


@pytest.fixture(scope="module")
def released(place):
    """The sdist and the wheel of `make dist`, built twice in different circumstances."""
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("this is no clone")
    folders = place / "first", place / "second"
    for folder, mask, zone in zip(folders, ("077", "002"), ("UTC", "Asia/Tokyo"), strict=True):
        command = f"umask {mask}; exec {sys.executable} {ROOT / 'tools/dist.py'} {folder}"
        run("sh", "-c", command, cwd=place, TZ=zone, TMPDIR=str(place))
        time.sleep(1.1)  # archives store times in seconds
    return [sorted(folder.iterdir()) for folder in folders]


def test_a_release_has_the_same_bytes_whenever_it_is_built(released):
    first, second = released
    assert [path.suffix for path in first] == [".whl", ".gz"]
    assert [path.name for path in first] == [path.name for path in second]
    for one, other in zip(first, second, strict=True):
        assert contents(one) == contents(other), one.name
        assert one.read_bytes() == other.read_bytes(), one.name


def test_a_release_is_small_and_carries_the_packages_alone(released):
    wheel, sdist = released[0]
    assert wheel.stat().st_size < MOST_BYTES
    assert sdist.stat().st_size < MOST_BYTES
    code = {name for name in contents(wheel) if ".dist-info/" not in name}
    stored = {name.partition("/")[2]: text for name, text in contents(sdist).items()}
    packed = {name for name in stored if name.startswith(("hf_tformer/", "conversion/"))}
    assert code == packed
    assert {name for name in stored if not name.startswith("hf_tformer.egg-info/")} - packed == {
        *("LICENSE", "README.md", "pyproject.toml", "PKG-INFO", "setup.cfg"),
    }


def test_every_command_says_what_it_does(wheel, fresh, place):
    names = scripts(wheel)
    assert "tformer-convert" in names
    for name in names:
        assert "usage:" in run(fresh / name, "--help", cwd=place).stdout
    for module in ("hf_tformer", "conversion"):
        assert "usage:" in run(fresh / "python", "-m", module, "--help", cwd=place).stdout


def test_the_three_programs_of_the_readme_run_from_the_wheel(fresh, place):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall("^```python\n(.*?)^```$", readme, re.M | re.S)
    own, backwards, seen = (run(fresh / "python", "-c", p, cwd=place).stdout for p in programs)
    assert re.search(r"5, +6, +7", own)
    assert re.search(r"6, 5, 4, 3, 2\]", backwards)
    assert seen.strip()
    assert "weights-0-decoder-0" in (place / "attention.html").read_text(encoding="utf-8")


def test_a_model_is_checked_published_and_converted(fresh, place, model):
    python = fresh / "python"
    said = run(python, "-m", "hf_tformer", "check", model, cwd=place).stdout
    assert "0 failed" in said
    said = run(python, "-m", "hf_tformer", "publish", model, "me/m", "--dry-run", cwd=place).stdout
    assert "nothing was sent" in said
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 24, "vocab_size": 31}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    LlamaForCausalLM(LlamaConfig(**sizes, **heads)).save_pretrained(place / "llama")
    run(fresh / "tformer-convert", "import", place / "llama", place / "ours", cwd=place)
    run(
        *(fresh / "tformer-convert", "export", place / "ours", place / "back", "--to", "llama"),
        cwd=place,
    )
    assert (place / "back" / "model.safetensors").exists()


@pytest.fixture(scope="module")
def examples(place):
    """Copied out of the checkout."""
    skipped = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(ROOT / "examples", place / "examples", ignore=skipped))


@pytest.fixture(scope="module")
def trained(fresh, place, examples):
    """What an example trained where only the wheel is."""
    (place / "text.txt").write_text("To be or not to be, that is the question.\n" * 400)
    sizes = "--hidden_size 16 --num_attention_heads 2 --num_key_value_heads 1"
    options = f"--text text.txt --output trained {sizes} --block_size 16 --max_steps 2".split()
    run(fresh / "python", examples / "train_language_model.py", *options, cwd=place)
    return place / "trained"


def test_what_an_example_trained_is_heard_by_another(fresh, place, examples, trained):
    words = (trained, "To be", "--max_new_tokens", "4")
    assert run(fresh / "python", examples / "generate.py", *words, cwd=place).stdout.strip()


NEEDS = {
    "finetune_lora.py": ("train", "trained --text text.txt"),
    "train_translation.py": ("train", "--output_dir translation"),
    "demo.py": ("train", "--output demo"),
    "train_language_model.py": ("train", "--dataset user/name --output other"),
    "attention_maps.py": ("viz", "trained question"),
}


@pytest.mark.parametrize("name", NEEDS)
def test_what_lacks_an_extra_names_it_in_one_sentence(name, fresh, place, examples, trained):
    extra, options = NEEDS[name]
    done = run(fresh / "python", examples / name, *options.split(), cwd=place, status=1)
    *_, sentence = done.stderr.strip().splitlines()
    assert f"pip install 'hf-tformer[{extra}]'" in sentence
    assert "Traceback" not in done.stderr
