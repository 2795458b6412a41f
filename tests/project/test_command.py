"""`tformer`: one command for all, that says what a mistyped word may have meant."""

import importlib
import re
import subprocess
import sys

import pytest

import conversion.command
from hf_tformer.__main__ import COMMANDS, main
from support.paths import ROOT

SCRIPTS = {"tformer": ["hf_tformer"], "tformer-convert": ["conversion"]}


def run(*words):
    """In a process of its own: what was imported there, and what was printed."""
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    return run.returncode, run.stdout, run.stderr


def ends(arguments, status=2, run=main):
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    assert stop.value.code == status


def test_help_names_every_command_and_loads_neither_torch_nor_transformers():
    code = """
import sys
from hf_tformer.__main__ import main
try:
    main(["--help"])
finally:
    print(sorted({"torch", "transformers", "huggingface_hub", "numpy"} & set(sys.modules)))
"""
    status, out, _ = run("-c", code)
    assert status == 0
    assert out.splitlines()[-1] == "[]"
    assert re.findall(r"^    (\w+) ", out, re.M) == [
        "new",
        "check",
        "publish",
        "refresh",
        "view",
        "plan",
        "convert",
        "prove",
        "rehome",
        "env",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_and_explains_itself(command, capsys):
    ends([command, "--help"], status=0)
    assert capsys.readouterr().out.startswith(f"usage: tformer {command} ")


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("chek folder", "check"),
        ("pubish folder user/name", "publish"),
        ("check folder --no-rum", "--no-run"),
        ("publish folder user/name --dryrun", "--dry-run"),
        ("publish folder user/name --revison=main", "--revision"),
        ("view folder text --layer-s 0", "--layers"),
        ("convert imprt a b", "import"),
        ("convert import a b --no-verfy", "--no-verify"),
        ("convert export a b --to lama", "llama"),
        ("convert import a b --dtype float23", "float32"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_right_one(line, suggestion, capsys):
    ends(line.split())
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"did you mean {suggestion}?")
    assert last.startswith("tformer")


def test_a_word_like_no_other_is_refused_without_a_guess(capsys):
    for line in ("zzz", "check folder --zzz"):
        ends(line.split())
        assert "did you mean" not in capsys.readouterr().err
    ends([])
    assert "COMMAND" in capsys.readouterr().err


def test_an_unknown_option_shows_the_usage_of_its_own_command(capsys):
    ends(["convert", "import", "a", "b", "--nonsense"])
    assert capsys.readouterr().err.startswith("usage: tformer convert import ")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_of_the_project_file_are_there(script):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    module, name = re.search(rf'^{script} = "(.+):(.+)"', text, re.M).groups()
    assert callable(getattr(importlib.import_module(module), name))


def test_the_older_spellings_are_the_same_commands(tmp_path, warm_python):
    expected = run("-m", "hf_tformer", "convert", "formats")
    assert expected[0] == 0
    assert run("-m", "conversion", "formats") == expected
    status, _, err = run("-m", "hf_tformer", "check", str(tmp_path))
    assert (status, err) == (2, f"error: {tmp_path} has no config.json: give a folder that "
                                "save_pretrained wrote\n")  # fmt: skip


def test_a_conversion_that_fails_names_the_command_that_was_typed(tmp_path, capsys):
    words = ["import", str(tmp_path / "gone"), str(tmp_path / "ours")]
    assert main(["convert", *words]) == 1
    typed = capsys.readouterr().err
    assert typed.startswith("tformer convert: ")
    assert conversion.command.main(words) == 1
    assert capsys.readouterr().err == typed.replace("tformer convert", "tformer-convert")


PLANTED = (
    *("safetensors", "hashlib", "typing", "dataclasses", "json", "tempfile", "argparse", "ast"),
    *("torch", "transformers", "huggingface_hub", "numpy", "packaging", "yaml", "regex", "pathlib"),
)
FROM_WITHIN = {
    "hf_tformer": (["-m", "hf_tformer", "check", ".", "--no-run"], 1),
    "hf_tformer, by its file": (["-m", "hf_tformer.__main__", "refresh", "."], 2),
    "conversion": (["-m", "conversion", "formats", "llama"], 0),
}


@pytest.mark.parametrize("how", FROM_WITHIN)
def test_no_module_of_the_current_folder_is_imported(how, tmp_path):
    """Python finds modules there first, and it may be the folder that is to be judged."""
    words, status = FROM_WITHIN[how]
    (tmp_path / "config.json").write_text('{"model_type": "x"}')
    for number, name in enumerate(PLANTED):
        place = tmp_path / (f"{name}.py" if number % 2 else f"{name}/__init__.py")
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path)
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    assert run.returncode == status, run.stderr


def test_a_checkout_that_is_not_installed_runs_from_its_own_folder():
    code = "import sys\nsys.argv[0] = '-m'\nimport conversion\nprint(conversion.__file__)"
    assert run("-c", code)[1].strip() == str(ROOT / "conversion" / "__init__.py")
