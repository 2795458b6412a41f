"""A folder that is not there is answered at once, also where the Hub cannot be reached."""

import time
from types import SimpleNamespace

import pytest

from hf_tformer.__main__ import main
from support.hub_server import online

COMMANDS = {
    "view": "SOURCE text",
    "plan": "SOURCE --devices 8 --memory 80 --tokens 10",
    "check": "SOURCE",
    "refresh": "SOURCE",
    "publish": "SOURCE user/name",
    "convert import": "SOURCE result",
    "convert export": "SOURCE result --to llama",
}


@pytest.mark.parametrize("source", ["gone", "user/gone"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_folder_is_answered_at_once(command, source, tmp_path, monkeypatch, capsys):
    import transformers  # noqa: F401 - importing it is not what is timed

    monkeypatch.chdir(tmp_path)
    nowhere = SimpleNamespace(endpoint="http://127.0.0.1:9")  # nothing listens there
    online(monkeypatch, nowhere, tmp_path / "home", waits=True)
    arguments = COMMANDS[command].replace("SOURCE", source).split()
    began = time.monotonic()
    assert main([*command.split(), *arguments]) != 0
    assert time.monotonic() - began < 5
    error = capsys.readouterr().err
    assert source in error.splitlines()[-1]
    assert "Retry" not in error
