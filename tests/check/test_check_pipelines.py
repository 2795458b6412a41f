"""What `tformer check` gives to pipelines: exit statuses, all findings as JSON and as SARIF, the
folders that changed files are in, and repositories that are read without their weights."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi

from hf_tformer.checking import Finding, check
from hf_tformer.checking.command import main, model_folders
from hf_tformer.checking.findings import exit_status
from hf_tformer.checking.sarif import sarif_of
from support.broken_models import FILE, edit_json, prepend, write_foreign
from support.hub_server import TOKEN, HubServer, online
from support.paths import ROOT

DANGEROUS = "import os\n" + "os.system('true')\n" * 70


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_foreign(tmp_path / "model")


def command(*arguments):
    return main([*map(str, arguments), "--no-run"])


STATUSES = {
    (): 0,
    (("safety", "warn"), ("padded rows", "ok")): 0,
    (("padded rows", "fail"),): 1,
    (("walls", "fail"),): 2,
    (("walls", "fail"), ("weights", "fail")): 1,
    (("safety", "fail"),): 3,
    (("foreign code", "fail"), ("walls", "fail"), ("cache", "fail")): 3,
}


@pytest.mark.parametrize("verdicts", STATUSES)
def test_the_exit_status_says_what_was_found(verdicts):
    assert exit_status(Finding(*verdict, "") for verdict in verdicts) == STATUSES[verdicts]


def test_each_exit_status_of_the_command(folder, tmp_path, capsys):
    assert command(folder) == 0
    (folder / "model.safetensors").write_bytes(b"broken")
    assert command(folder) == 1
    assert command(tmp_path / "gone") == 2
    prepend(folder / FILE, DANGEROUS)
    assert command(folder) == 3
    with pytest.raises(SystemExit) as usage:
        command()
    assert usage.value.code == 2
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["--help"])
    help = " ".join(capsys.readouterr().out.split())
    assert "3 if reading found something dangerous" in help


def test_json_has_all_places_where_the_report_names_five(folder, capsys):
    prepend(folder / FILE, DANGEROUS)
    assert command(folder, "--json") == 3
    (found,) = [
        finding
        for finding in json.loads(capsys.readouterr().out)
        if finding["detail"].startswith("subprocess")
    ]
    assert len(found["places"]) == 70
    assert found["places"][0] == f"{FILE}:2 os.system"
    assert found["rests_on"] == "read"
    assert "and 65 more" in found["detail"]


def test_sarif_has_what_the_format_requires_and_every_place(folder, tmp_path, capsys):
    prepend(folder / FILE, DANGEROUS)
    assert command("model", "--sarif", tmp_path / "log.sarif") == 3
    log = json.loads((tmp_path / "log.sarif").read_text())
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(rules) == len(set(rules))
    for result in run["results"]:
        assert result["ruleId"] in rules
        assert result["level"] in ("error", "warning")
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert re.fullmatch(r"model/[\w.]+", place["artifactLocation"]["uri"])
        assert place.get("region", {"startLine": 1})["startLine"] >= 1
    lines = [
        result["locations"][0]["physicalLocation"]["region"]["startLine"]
        for result in run["results"]
        if result["ruleId"] == "safety-subprocess"
    ]
    assert lines == list(range(2, 72))


def test_sarif_of_odd_names_is_a_log(tmp_path):
    finding = Finding("safety", "fail", "pickle: \x1b x", places=("a b/c d.py:0 x", "é.py:7"))
    log = sarif_of(
        {"mo del": [finding, Finding("cache", "ok", ""), Finding("loads: X", "fail", "")]}
    )
    results = log["runs"][0]["results"]
    uris = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results]
    assert uris == ["mo%20del/config.json", "mo%20del/%C3%A9.py", "mo%20del/config.json"]
    assert "\x1b" not in results[0]["message"]["text"]
    assert [result["ruleId"] for result in results[1:]] == ["safety-pickle", "loads"]


def test_a_clean_folder_gives_an_empty_log(folder, tmp_path):
    assert command("model", "--sarif", tmp_path / "log.sarif") == 0
    assert json.loads((tmp_path / "log.sarif").read_text())["runs"][0]["results"] == []


def test_changed_files_lead_to_the_folders_of_models_above_them(folder, tmp_path):
    inner = folder / "0_Transformer"
    inner.mkdir()
    (inner / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "config.json").write_text('{"port": 80}')
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text("{")
    assert model_folders([f"model/{FILE}"]) == ["model"]
    assert model_folders(["model/0_Transformer/x.py"]) == ["model", "model/0_Transformer"]
    assert model_folders(["web/a.py", "README.md", "gone/a.py", "/etc/passwd", "../x.py"]) == []
    assert model_folders(["odd/a.py", f"model/{FILE}", "model/config.json"]) == ["model", "odd"]


def test_changed_folders_are_checked_and_the_worst_counts(folder, tmp_path, capsys):
    evil = write_foreign(tmp_path / "evil")
    prepend(evil / FILE, DANGEROUS)
    (tmp_path / "names").write_bytes(b"evil/config.json\0model/config.json\0")
    assert command("--changed-from", "names", "--json") == 3
    assert list(json.loads(capsys.readouterr().out)) == ["evil", "model"]
    assert command("--changed", "model/config.json", "README.md") == 0
    assert capsys.readouterr().out.startswith("model:\n")
    assert command("--changed", "README.md") == 0
    assert command("--changed") == 0


def test_the_hook_and_the_action_call_the_command_as_it_is(folder, tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language"} <= hook.keys()
    assert hook["entry"].split()[:2] == ["tformer", "check"]
    assert main([*hook["entry"].split()[2:], "model/config.json"]) == 0
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    scripts = [step for step in action["runs"]["steps"] if "run" in step]
    assert all(step["shell"] == "bash" for step in scripts)
    assert not any("${{" in step["run"] for step in scripts)  # an input would be code there
    script = scripts[-1]["run"].replace("tformer", f"{sys.executable} -m hf_tformer")
    for line in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *line], check=True, cwd=tmp_path)
    prepend(folder / FILE, DANGEROUS)
    variables = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "RUNNER_TEMP": str(tmp_path)}
    variables |= {"BASE": "", "SARIF": "log.sarif", "HOME": str(tmp_path)}
    ended = subprocess.run(["bash", "-e", "-c", script], env=variables, cwd=tmp_path, check=False)
    assert ended.returncode == 3
    assert json.loads(Path("log.sarif").read_text())["runs"][0]["results"]


def test_a_repository_is_read_at_a_revision_without_its_weights(folder, tmp_path, monkeypatch):
    (folder / "other.pth.tar").write_bytes(b"x")
    edit_json(folder / "model.safetensors.index.json", weight_map={"a": "model.safetensors"})
    with HubServer() as server:
        online(monkeypatch, server, tmp_path / "home")
        api = HfApi(endpoint=server.endpoint, token=TOKEN)
        api.create_repo("user/tiny")
        commit = api.upload_folder(repo_id="user/tiny", folder_path=folder).oid
        api.upload_file(path_or_fileobj=DANGEROUS.encode(), path_in_repo=FILE, repo_id="user/tiny")
        server.log.clear()
        findings = check("user/tiny", commit, run=False)
        asked = [path for _, path in server.log if "resolve" in path]
        newest = check("user/tiny", run=False)
    assert any(path.endswith(FILE) for path in asked)
    assert not any(path.endswith((".safetensors", ".tar")) for path in asked)
    assert exit_status(findings) == 0
    (weights,) = [f for f in findings if (f.name, f.verdict) == ("weights", "skip")]
    assert "not downloaded" in weights.detail
    assert set(weights.places) == {"model.safetensors", "other.pth.tar"}
    assert exit_status(newest) == 3
