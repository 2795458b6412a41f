"""`tformer refresh` of a repository, with the Hub's real client against a small Hub on loopback."""

import re

import pytest
from huggingface_hub import HfApi

import hf_tformer
from hf_tformer.__main__ import main
from hf_tformer.checking.package_code import package_code
from hf_tformer.checking.same_answers import Comparison
from hf_tformer.publishing import publish
from hf_tformer.refreshing import RefreshError, committing, renewal
from support.cards import programs_of
from support.hub_server import TOKEN, HubServer, online
from support.refreshing import old_folder

pytestmark = pytest.mark.usefixtures("warm_python")

ME = "user/tiny"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with HubServer() as server:
        online(monkeypatch, server, tmp_path / "home")
        yield server


@pytest.fixture
def old(hub, tmp_path):
    """A repository that was published with the code of its day; the commit that its card pins."""
    folder = old_folder("decoder", tmp_path)
    (folder / "notes.txt").write_text("mine")
    return publish(folder, ME, token=TOKEN, verify=False).commit


@pytest.fixture
def equal(monkeypatch):
    """Takes the answers for equal, and what arrived for whole: both take seconds."""
    monkeypatch.setattr(renewal, "compare_with_package", lambda *_: Comparison(["AutoModel"], None))
    monkeypatch.setattr(committing, "verify_arrival", lambda *_: None)


def refresh(**options):
    return hf_tformer.refresh(ME, token=TOKEN, **options)


def code_of(files):
    return {name: data for name, data in files.items() if name.endswith(".py")}


def test_a_repository_gets_todays_code_in_one_commit_that_a_second_one_pins(
    hub, old, monkeypatch, capsys
):
    """Answers are compared in test_refreshing.py; here it is loaded back."""
    monkeypatch.setattr(renewal, "compare_with_package", lambda *_: Comparison([], None))
    before, head = hub.files(ME), hub.commits(ME)[0].sha
    hub.log.clear()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert main(["refresh", ME]) == 0
    pinned, commit, parent, *_ = hub.commits(ME)
    assert parent.sha == head
    assert f"files changed in commit {commit.sha}" in capsys.readouterr().out
    today = {name: path.read_bytes() for name, path in package_code("tformer_decoder").items()}
    assert code_of(hub.files(ME, commit.sha)) == code_of(hub.files(ME)) == today
    for name in before.keys() - {"README.md"} - code_of(before).keys():
        assert hub.files(ME)[name] == before[name]
    assert not [path for method, path in hub.log if method == "PUT" or "/lfs" in path]
    changed = {name for name, data in pinned.files.items() if commit.files[name].data != data.data}
    assert changed == {"README.md"}
    programs = programs_of(hub.files(ME)["README.md"].decode())
    assert len(programs) == 2
    assert all(commit.sha in program for program in programs)

    hub.log.clear()
    assert main(["refresh", ME]) == 0
    assert f"{ME} is current\n" in capsys.readouterr().out
    assert {method for method, _ in hub.log} <= {"GET", "HEAD"}


def test_the_card_lists_the_hashes_of_the_new_code(hub, old, equal):
    refreshed = refresh()
    card = hub.files(ME)["README.md"].decode()
    listed = dict(re.findall(r"`(\w+\.py)` \| `(\w{64})`", card))
    assert listed == {c.file: c.after for c in refreshed.changes if c.after and ".py" in c.file}
    assert old not in card


def test_a_dry_run_sends_nothing(hub, old, equal):
    hub.log.clear()
    refreshed = refresh(dry_run=True)
    assert refreshed.changes
    assert not refreshed.written
    assert not [path for method, path in hub.log if "/commit/" in path]


def test_a_push_of_somebody_else_meanwhile_is_not_overwritten(hub, old, equal, monkeypatch):
    def compare(*_):
        api = HfApi(token=TOKEN)
        api.upload_file(path_or_fileobj=b"theirs", path_in_repo="layers.py", repo_id=ME)
        return Comparison([], None)

    monkeypatch.setattr(renewal, "compare_with_package", compare)
    before = code_of(hub.files(ME))
    words = "someone else pushed at the same moment: look at it, then refresh again .nothing was"
    with pytest.raises(RefreshError, match=words) as caught:
        refresh()
    assert not caught.value.unsuitable
    assert code_of(hub.files(ME)) == before | {"layers.py": b"theirs"}


def test_a_card_that_was_not_pinned_is_pinned_by_the_next_run(hub, old, equal):
    """The connection was lost between the two commits."""
    real = HfApi.upload_file
    with pytest.MonkeyPatch.context() as lost:
        lost.setattr(HfApi, "upload_file", lambda *_, **__: (_ for _ in ()).throw(OSError("lost")))
        with pytest.raises(RefreshError, match="is there, but its card does not pin it"):
            refresh()
    assert HfApi.upload_file is real
    commit = hub.commits(ME)[0].sha
    assert 'revision="main"' in hub.files(ME)["README.md"].decode()
    refreshed = refresh()
    assert (refreshed.changes, refreshed.written) == ([], True)
    assert commit in hub.files(ME)["README.md"].decode()
    assert not refresh().written


def test_a_branch_is_renewed_and_main_is_not(hub, old, equal):
    before = hub.files(ME)
    HfApi(token=TOKEN).create_branch(ME, branch="second")
    refreshed = refresh(revision="second")
    assert hub.files(ME) == before
    assert refreshed.commit == hub.commits(ME, "second")[1].sha
    with pytest.raises(RefreshError, match="nothing was changed there"):
        refresh(revision="third")


def test_a_card_of_ones_own_stays_and_no_second_commit_is_made(hub, equal, tmp_path):
    folder = old_folder("decoder", tmp_path)
    (folder / "README.md").write_text("# Mine")
    publish(folder, ME, token=TOKEN, verify=False)
    refreshed = refresh()
    assert refreshed.notes == ["README.md is left as it is: publish did not write it"]
    assert hub.files(ME)["README.md"] == b"# Mine"
    assert refreshed.commit == hub.commits(ME)[0].sha


@pytest.mark.parametrize("status", [400, 403])
def test_a_refused_commit_leaves_what_was_there(status, hub, old, equal):
    before = hub.files(ME)
    hub.fail_next("POST /api/models/user/tiny/commit", status)
    with pytest.raises(RefreshError, match=rf"{status}.*nothing was changed there"):
        refresh()
    assert hub.files(ME) == before


def test_a_repository_that_cannot_be_seen_is_one_sentence(hub, capsys):
    assert main(["refresh", "user/none"]) == 1
    assert "user/none: it does not exist, or your token may not see it" in capsys.readouterr().err


def test_damage_on_the_way_is_found(hub, old, monkeypatch):
    monkeypatch.setattr(renewal, "compare_with_package", lambda *_: Comparison([], None))
    hub.corrupt(ME, "position_bias.py")
    with pytest.raises(RefreshError, match=r"position_bias\.py.* arrived damaged"):
        refresh()
