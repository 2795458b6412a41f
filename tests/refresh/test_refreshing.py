"""`tformer refresh`: today's code for a folder of yesterday, where it answers the same."""

import fcntl
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import hf_tformer
from hf_tformer.__main__ import main
from hf_tformer.checking import fresh_process, report, same_answers
from hf_tformer.checking.behind_walls import ALL, Outcome
from hf_tformer.checking.folder import CheckError, Folder
from hf_tformer.checking.package_code import package_code, with_auto_map
from hf_tformer.checking.same_answers import Answers, Comparison, differences
from hf_tformer.model.configuration_base import FORMAT_VERSION
from hf_tformer.publishing import card as publish_card
from hf_tformer.refreshing import RefreshError, renewal, replacing
from support.fallen_walls import MACHINES, move_to
from support.refreshing import OUTLIVED, content, expect_same_answers, old_folder

pytestmark = pytest.mark.usefixtures("warm_python", "read_here")


@pytest.fixture
def folder(tmp_path):
    return old_folder("decoder", tmp_path)


@pytest.fixture
def equal(monkeypatch):
    """Takes the answers for equal, where a test is not about them: comparing takes seconds."""
    comparison = Comparison(["AutoModel"], None)
    monkeypatch.setattr(renewal, "compare_with_package", lambda *_: comparison)


def edit_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def todays_code(family):
    return {name: path.read_bytes() for name, path in package_code(f"tformer_{family}").items()}


@pytest.mark.parametrize("family", [pytest.param("decoder", marks=OUTLIVED), "seq2seq"])
def test_a_folder_of_yesterday_gets_todays_code_and_answers_as_it_did(family, tmp_path, capsys):
    folder = old_folder(family, tmp_path)
    weights = (folder / "model.safetensors").stat()
    kept = {name: data for name, data in content(folder).items() if not name.endswith(".py")}
    assert main(["refresh", str(folder)]) == 0
    output = capsys.readouterr().out
    assert re.search(r"attention.py +\w{8} → \w{8}\n", output)
    assert re.search(r"position_bias.py +-{8} → \w{8}\n", output)
    assert re.search(r"beams.py +\w{8} → -{8}\n", output)
    found, config = content(folder), json.loads(kept.pop("config.json"))
    heads = ", ".join(sorted(name for name in config["auto_map"] if name != "AutoConfig"))
    assert f"answers are equal: {heads}\n" in output
    # with heads that are new
    config["auto_map"] = hf_tformer.families.FAMILIES[f"tformer_{family}"].auto_map()
    assert json.loads(found.pop("config.json")) == config
    assert found == kept | todays_code(family)
    after = (folder / "model.safetensors").stat()
    assert (after.st_ino, after.st_mtime_ns) == (weights.st_ino, weights.st_mtime_ns)
    expect_same_answers([folder], family, tmp_path)

    before = content(folder)
    assert main(["refresh", str(folder)]) == 0
    assert f"{folder} is current" in capsys.readouterr().out
    assert content(folder) == before


DOUBLED = """
_forward = TformerDecoderForTokenClassification.forward

def forward(self, *args, **kwargs):
    output = _forward(self, *args, **kwargs)
    output.logits = output.logits * 2
    return output

TformerDecoderForTokenClassification.forward = forward
"""


@OUTLIVED
def test_nothing_is_written_where_one_head_answers_otherwise(folder, capsys):
    """The one whose weights are not even in the checkpoint."""
    edit_config(folder, transformers_version="5.15.0")
    with (folder / "modeling_decoder.py").open("a") as code:
        code.write(DOUBLED)
    before = content(folder)
    assert main(["refresh", str(folder)]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: nothing was written")
    assert re.search(
        r"AutoModelForTokenClassification, asked for .*: logits: they differ by", error
    )
    assert error.endswith("refresh it where transformers 5.15.0 is installed")
    assert content(folder) == before


def test_code_that_does_not_run_any_more_is_left_and_its_fault_is_told(folder, capsys):
    with (folder / "modeling_decoder.py").open("a") as code:
        code.write("from torch import gone_since\n")
    before = content(folder)
    assert main(["refresh", str(folder)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "AutoModel does not open with the folder's own code (ImportError: cannot" in error
    assert content(folder) == before


@pytest.fixture
def marked(folder, tmp_path, monkeypatch):
    """Exists once anything of the folder could have run: the probe that loads it is replaced."""
    path = tmp_path / "mark"
    (tmp_path / "probe.py").write_text(f"def main(*_):\n    open({str(path)!r}, 'a').close()\n")
    monkeypatch.setattr(same_answers, "PROBE", tmp_path / "probe.py")
    return path


DANGEROUS = (
    "import subprocess",
    "import os\nos.system('/nonexistent')",
    "exec.__call__('1')",
    "def f(path):\n    open(path, 'w')",
)


@pytest.mark.parametrize("line", DANGEROUS)
@pytest.mark.parametrize("file", ["layers.py", "custom_generate/generate.py"])
def test_dangerous_code_is_read_and_not_run(line, file, folder, monkeypatch, capsys):
    (folder / file).parent.mkdir(exist_ok=True)
    with (folder / file).open("a") as code:
        code.write(f"\n{line}\n")
    before = content(folder)
    monkeypatch.setattr(renewal, "compare_with_package", None)
    for flags in ([], ["--dry-run"], ["--without-walls"]):
        assert main(["refresh", str(folder), *flags]) == 1
        error = capsys.readouterr().err
        assert "nothing was written: no code was run, because reading it found safety" in error
        assert file in error
    assert content(folder) == before


@pytest.mark.parametrize("machine", MACHINES)
def test_where_a_wall_is_missing_nothing_is_run(
    machine, folder, marked, tmp_path, monkeypatch, capsys
):
    words = move_to(machine, monkeypatch, tmp_path)
    before = content(folder)
    assert main(["refresh", str(folder)]) == 2
    assert words in (error := capsys.readouterr().err)
    assert "--without-walls" in error
    assert not marked.exists()
    assert content(folder) == before


def test_without_walls_is_a_word_of_the_user(folder, marked, tmp_path, monkeypatch, capsys):
    move_to("macOS", monkeypatch, tmp_path)
    assert main(["refresh", str(folder), "--without-walls"]) == 2
    assert marked.exists()
    assert "left no answers" in capsys.readouterr().err  # as the probe is none here


def answers(**changed):
    tensors = {
        "A/one text: logits": np.array([[1.0, -2.0]], dtype=np.float32),
        "A/greedy tokens: ids": np.array([3, 4]),
    }
    return Answers(["A"], tensors | changed.pop("tensors", {}), changed)


def test_answers_are_equal_within_rounding_and_different_beyond():
    logits = "A/one text: logits"
    near = {logits: np.array([[1.0, -2.0 + 1.5e-5]], dtype=np.float32)}
    assert not list(differences(answers(), answers(tensors=near)))
    for tensors, words in (
        ({logits: np.array([[1.0, -2.1]], dtype=np.float32)}, "differ by 5.0e-02 of their scale"),
        ({logits: np.array([[1.0, np.nan]], dtype=np.float32)}, "differ by nan"),
        ({logits: np.array([[1.0]], dtype=np.float32)}, r"shape \[1, 2\] became \[1, 1\]"),
        ({"A/greedy tokens: ids": np.array([3, 5])}, "1 of 2 are others"),
        ({"A/two texts: logits": np.array([3.0])}, "only one of the two answers"),
    ):
        told = next(differences(answers(), answers(tensors=tensors)))
        assert re.search(f"^A, asked for .*: .*{words}", told)
    for name, words in (("A/one text", "an answer became no"), ("A/loading", r"not open \(no\)")):
        assert re.search(words, next(differences(answers(), answers(**{name: "no"}))))


def test_where_no_wall_keeps_large_weights_they_are_copied_and_not_linked(folder, monkeypatch):
    """As on a system without walls: the code could write through a link."""
    asked = []

    def run(program, arguments, *, needed, readable, **_):
        weights = Path(arguments[0], "model.safetensors").resolve()
        asked.append((bool(needed), weights == folder / "model.safetensors"))
        if not needed:
            save_file({}, arguments[1])
        return Outcome([["head", "AutoModel"]], walls={"files": "there are none"})

    size = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(fresh_process, "LARGE", size)
    monkeypatch.setattr(same_answers, "run_behind_walls", run)
    comparison = same_answers.compare_with_package(Folder(folder), 9, without_walls=True)
    assert asked == [(True, True), (False, False), (False, False)]
    assert comparison == Comparison(["AutoModel"], None)


def test_a_dry_run_says_what_would_change_and_writes_nothing(folder, equal, capsys):
    before = content(folder)
    assert main(["refresh", str(folder), "--dry-run"]) == 0
    assert "16 files would change; nothing was written" in capsys.readouterr().out
    refreshed = hf_tformer.refresh(folder, dry_run=True)
    assert not refreshed.written
    changed = {change.file: change for change in refreshed.changes}
    assert changed["beams.py"].after is changed["position_bias.py"].before is None
    assert content(folder) == before


def without_code(folder):
    for path in folder.glob("*.py"):
        path.unlink()


UNSUITABLE = {
    "someone else's": (lambda f: edit_config(f, model_type="llama"), "model_type is 'llama'"),
    "no map": (lambda f: edit_config(f, auto_map=None), "brings no code of its own"),
    "no code": (without_code, "brings no code of its own"),
    "code elsewhere": (
        lambda f: edit_config(f, auto_map={"AutoModel": "a/b--c.D"}),
        "in another repository",
    ),
    "later format": (
        lambda f: edit_config(f, format_version=FORMAT_VERSION + 1),
        f"format_version is {FORMAT_VERSION + 1}.*pip install --upgrade",
    ),
    "pickled weights": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "no safetensors weights",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "a name that is taken": (
        lambda f: (f / "position_bias.py").write_text("# mine"),
        "position_bias.py is not part of the model",
    ),
}


@pytest.mark.parametrize("how", UNSUITABLE)
def test_what_cannot_be_renewed_is_one_sentence(how, folder, monkeypatch, capsys):
    monkeypatch.setattr(renewal, "compare_with_package", None)  # is not reached
    spoil, words = UNSUITABLE[how]
    spoil(folder)
    before = content(folder)
    assert main(["refresh", str(folder)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.match(f"error: .*{words}", error)
    assert content(folder) == before


@pytest.mark.parametrize("source", ["./gone", "/gone/away", "one/two/three", "name", "config.json"])
def test_what_is_no_folder_and_no_repository_is_one_sentence(source, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(RefreshError, match="neither a folder here nor a repository's name"):
        hf_tformer.refresh(source)
    with pytest.raises(RefreshError, match="can only be chosen of a repository"):
        hf_tformer.refresh(".", revision="other")


def test_files_that_are_not_ours_are_left_and_named(folder, equal, capsys):
    mine = {"my_notes.py": b"# mine", "attention_before.py": (folder / "attention.py").read_bytes()}
    for name, code in mine.items():
        (folder / name).write_bytes(code)
    assert main(["refresh", str(folder)]) == 0
    assert "not ours: attention_before.py, my_notes.py\n" in capsys.readouterr().out
    code = {name: data for name, data in content(folder).items() if name.endswith(".py")}
    assert code == todays_code("decoder") | mine


def test_a_head_of_somebodys_own_keeps_its_file_and_its_place_in_the_map(folder, equal):
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    edit_config(folder, auto_map={**auto_map, "AutoModelForMaskedLM": "my_head.MyHead"})
    (folder / "my_head.py").write_text("from .modeling_decoder import x")
    before = (folder / "config.json").read_bytes()
    assert hf_tformer.refresh(folder).left == ["my_head.py"]
    assert (folder / "config.json").read_bytes() == before


def test_new_heads_enter_the_map_and_no_other_byte_changes(folder, equal):
    text = (folder / "config.json").read_text()
    head = "AutoModelForTokenClassification"
    line = f',\n    "{head}": "modeling_decoder.TformerDecoderFor{head[12:]}"'
    assert line in text
    (folder / "config.json").write_text(text.replace(line, ""))
    hf_tformer.refresh(folder)
    assert (folder / "config.json").read_text() == text


def test_a_map_is_replaced_in_a_file_of_any_form():
    text = '{"a" : {"auto_map": {"x":1}},\r\n "auto_map":{ "AutoModel":"a.B"},\t"z":"\\u00e4ä"}'
    changed = with_auto_map(text, {"AutoModel": "c.D"})
    before, after = text.split('{ "AutoModel":"a.B"}')
    assert changed.startswith(before)
    assert changed.endswith(after)
    assert json.loads(changed) == {**json.loads(text), "auto_map": {"AutoModel": "c.D"}}
    assert with_auto_map(text, {"AutoModel": "a.B"}) == text


def test_our_card_gets_the_new_hashes_and_keeps_every_other_word(folder, equal):
    publish_card.write_card(folder, "user/tiny", parameters=9, revision="0" * 40)
    old = (
        (folder / "README.md")
        .read_text()
        .replace(f"made with hf_tformer {hf_tformer.__version__}", "made with hf_tformer 0.0.9")
    )
    (folder / "README.md").write_text(old)
    with (folder / "layers.py").open("a") as code:
        code.write("# edited")
    refreshed = hf_tformer.refresh(folder)
    assert refreshed.notes == ["layers.py is not what it was when its card was written"]
    publish_card.write_card(folder, "user/tiny", parameters=9)
    fresh = (folder / "README.md").read_text()
    renewed = f"made with hf_tformer 0.0.9, its code renewed with {hf_tformer.__version__}"
    assert refreshed.changes[0].file == "README.md"
    (folder / "README.md").write_text(old)
    hf_tformer.refresh(folder)
    found = (folder / "README.md").read_text()
    assert found == fresh.replace(f"made with hf_tformer {hf_tformer.__version__}", renewed)
    assert not hf_tformer.refresh(folder).changes


@pytest.mark.parametrize("card", [b"# Mine\n\n| file | SHA-256 |\n|---|---|\n", b"# M\xe4ine"])
def test_a_card_of_the_users_own_is_left_and_this_is_said(card, folder, equal):
    (folder / "README.md").write_bytes(card)
    refreshed = hf_tformer.refresh(folder)
    assert refreshed.notes == ["README.md is left as it is: publish did not write it"]
    assert (folder / "README.md").read_bytes() == card


def test_a_report_that_nobody_meant_is_told(folder, monkeypatch):
    outcome = Outcome([["head", 3]], walls=dict.fromkeys(ALL, ""))
    monkeypatch.setattr(same_answers, "run_behind_walls", lambda *_, **__: outcome)
    with pytest.raises(RefreshError, match="the code under test interfered with the report"):
        hf_tformer.refresh(folder)


def test_a_folder_in_the_cache_of_the_hub_is_not_written_to(folder, equal, tmp_path):
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "blobs").mkdir()
    folder = folder.rename(tmp_path / "snapshots" / "abc")
    blob = (folder / "layers.py").rename(tmp_path / "blobs" / "1234")
    (folder / "layers.py").symlink_to(blob)
    before = content(folder)
    with pytest.raises(RefreshError, match=r"layers\.py is a link, as in the cache of the Hub"):
        hf_tformer.refresh(folder)
    assert content(folder) == before


def test_two_runs_in_one_folder_are_one_after_the_other(folder, equal):
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(RefreshError, match="is being refreshed by another process"):
        hf_tformer.refresh(folder)
    os.close(lock)
    assert hf_tformer.refresh(folder).written


def test_what_changed_while_it_was_compared_is_not_overwritten(folder, monkeypatch):
    def compare(*_):
        (folder / "layers.py").write_text("# a new idea")
        return Comparison([], None)

    monkeypatch.setattr(renewal, "compare_with_package", compare)
    before = content(folder)
    with pytest.raises(RefreshError, match=r"layers\.py was changed meanwhile"):
        hf_tformer.refresh(folder)
    assert content(folder) == before | {"layers.py": b"# a new idea"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_changes_nothing_and_leaves_nothing(
    folder, equal, monkeypatch, error
):
    real = replacing.write

    def write(file, *args, **kwargs):
        if file.name == "losses.py":
            raise error
        real(file, *args, **kwargs)

    monkeypatch.setattr(replacing, "write", write)
    before = content(folder)
    wanted = RefreshError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted) as caught:
        hf_tformer.refresh(folder)
    if wanted is RefreshError:
        assert "(No space left on device): nothing was changed" in str(caught.value)
    assert content(folder) == before
    assert not [path for path in folder.iterdir() if path.is_dir()]


def test_files_keep_the_rights_that_they_had(folder, equal):
    (folder / "attention.py").chmod(0o600)
    (folder / "config.json").chmod(0o640)
    hf_tformer.refresh(folder)
    assert (folder / "attention.py").stat().st_mode & 0o777 == 0o600
    assert (folder / "config.json").stat().st_mode & 0o777 == 0o640


COMPARISONS = {
    "the answers are equal: `tformer refresh` renews the code": ("warn", None),
    "where the package is installed its code runs, and AutoModel, asked": (
        "fail",
        "AutoModel, asked for x: they differ",
    ),
    "their answers were not compared: it does not open": ("warn", CheckError("it does not open")),
}


@pytest.mark.parametrize("words", COMPARISONS)
def test_check_says_whether_other_code_matters(words, folder, monkeypatch):
    verdict, outcome = COMPARISONS[words]

    def compare(*_):
        if isinstance(outcome, Exception):
            raise outcome
        return Comparison([], outcome)

    monkeypatch.setattr(report, "compare_with_package", compare)
    finding = report.compare_code(Folder(folder), run=True, timeout=9)
    assert finding.verdict == verdict
    assert words in finding.detail
    unrun = report.compare_code(Folder(folder), run=False, timeout=9)
    assert unrun.verdict == "warn"
    assert words not in unrun.detail


def test_check_compares_nothing_where_the_code_is_the_same(folder, equal, monkeypatch):
    monkeypatch.setattr(report, "compare_with_package", None)
    hf_tformer.refresh(folder)
    (folder / "notes.py").touch()
    assert "extra: notes.py" in report.compare_code(Folder(folder), True, 9).detail


def test_a_family_that_is_no_text_is_refused_in_one_sentence(folder, capsys):
    edit_config(folder, model_type=["tformer_decoder"])
    assert main(["refresh", str(folder)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: model_type is ['tformer")


def test_what_is_printed_cannot_move_the_cursor(folder, equal, capsys):
    (folder / "a\x1b[2J\nb.py").write_text("")
    strange = folder.rename(folder.with_name("a\x1b[2J\nb"))
    assert main(["refresh", str(strange), "--dry-run"]) == 0
    output = capsys.readouterr()
    assert "left as they are" in output.out
    assert "\x1b" not in output.out + output.err
    assert len(output.err.splitlines()) == 1
