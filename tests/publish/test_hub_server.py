"""The small Hub of the tests, asked by the real client."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    constants,
    get_session,
    hf_hub_download,
    is_offline_mode,
    snapshot_download,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoConfig, LlamaConfig

from support.hub_server import TOKEN, HubServer, environment, online

pytestmark = pytest.mark.usefixtures("warm_python")

REPO = "user/repo"
WEIGHTS = bytes(range(256)) * 40
READER = """
import sys
from transformers import AutoConfig
config = AutoConfig.from_pretrained("user/repo", revision=sys.argv[1])
print(config.model_type, config.hidden_size)
"""


@pytest.fixture
def server(monkeypatch, tmp_path):
    with HubServer() as server:
        online(monkeypatch, server, tmp_path / "home")
        yield server


@pytest.fixture
def api(server):
    api = HfApi(endpoint=server.endpoint, token=TOKEN)
    api.create_repo(REPO)
    return api


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    (folder / "sub" / "some notes.txt").write_text("text")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    return folder


def contents(folder):
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def add(path, data):
    return CommitOperationAdd(path, data)


def push(api, message="a commit", **files):
    """Each `name=bytes` becomes the file name.txt."""
    operations = [add(f"{name}.txt", data) for name, data in files.items()]
    return api.create_commit(REPO, operations, commit_message=message)


def test_a_repository_is_created_once_and_deleted(server, api):
    assert api.whoami()["name"] == "user"
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_repo(REPO)
    assert refused.value.response.status_code == 409
    assert api.create_repo(REPO, exist_ok=True).repo_id == REPO
    assert api.create_repo("alone").repo_id == "user/alone"
    api.delete_repo(REPO)
    assert not api.repo_exists(REPO)
    with pytest.raises(RepositoryNotFoundError):
        api.delete_repo(REPO)
    api.delete_repo(REPO, missing_ok=True)


def test_a_private_repository_exists_for_its_owner_only(server):
    api = HfApi(endpoint=server.endpoint, token=TOKEN)
    api.create_repo("user/hidden", private=True)
    assert api.model_info("user/hidden").private
    for token in (False, "hf_other"):
        with pytest.raises(RepositoryNotFoundError):
            api.model_info("user/hidden", token=token)


def test_only_the_owner_writes(server, api):
    for token in (False, "hf_other", "not a token"):
        with pytest.raises(HfHubHTTPError) as refused:
            push(HfApi(endpoint=server.endpoint, token=token), a=b"a")
        assert refused.value.response.status_code == (403 if token == "hf_other" else 401)
    with pytest.raises(HfHubHTTPError, match="may not create"):
        api.create_repo("other/repo")
    assert len(server.commits(REPO)) == 1


def test_a_folder_arrives_in_one_commit(server, api, folder):
    commit = api.upload_folder(repo_id=REPO, folder_path=folder, commit_message="all of it")
    newest, first = server.commits(REPO)
    assert (newest.sha, newest.title, newest.parent) == (commit.oid, "all of it", first)
    arrived = server.files(REPO)
    arrived.pop(".gitattributes")
    assert arrived == contents(folder)
    lfs = {
        file.path for file in api.list_repo_tree(REPO, recursive=True) if getattr(file, "lfs", 0)
    }
    assert lfs == {"model.safetensors"}
    assert [commit.title for commit in api.list_repo_commits(REPO)] == [
        "all of it",
        "initial commit",
    ]
    # The second time the client finds that nothing differs, from the hashes of the server.
    assert api.upload_folder(repo_id=REPO, folder_path=folder).oid == commit.oid
    assert len(server.commits(REPO)) == 2
    assert not [path for _, path in server.log if "xet" in path]


def test_files_are_listed_as_the_hub_lists_them(server, api, folder):
    before = server.commits(REPO)[0].sha
    commit = api.upload_folder(repo_id=REPO, folder_path=folder)
    assert api.list_repo_files(REPO, revision=before) == [".gitattributes"]
    names = sorted([*contents(folder), ".gitattributes"])
    for revision in (None, "main", commit.oid):
        assert sorted(api.list_repo_files(REPO, revision=revision)) == names
    assert {entry.path for entry in api.list_repo_tree(REPO)} == {
        *(name for name in names if "/" not in name),
        "sub",
    }
    assert [entry.path for entry in api.list_repo_tree(REPO, "sub")] == ["sub/some notes.txt"]
    found = api.get_paths_info(REPO, ["model.safetensors", "absent", "config.json"])
    assert [(file.path, file.size) for file in found] == [
        ("model.safetensors", len(WEIGHTS)),
        ("config.json", 8),
    ]
    info = api.model_info(REPO, revision=commit.oid, files_metadata=True)
    assert (info.id, info.sha, info.private) == (REPO, commit.oid, False)
    weights = next(file for file in info.siblings if file.rfilename == "model.safetensors")
    assert (weights.size, weights.lfs.sha256) == (len(WEIGHTS), found[0].lfs.sha256)
    assert api.model_info(REPO).sha == commit.oid
    assert api.model_info(REPO, revision=before).siblings[0].size is None


def test_what_does_not_exist_has_its_own_error(server, api):
    with pytest.raises(RevisionNotFoundError):
        api.model_info(REPO, revision="absent")
    with pytest.raises(RevisionNotFoundError):
        api.create_commit(REPO, [add("a", b"")], commit_message="m", revision="absent")
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(REPO, "absent.json")
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(REPO, "absent"))
    with pytest.raises(EntryNotFoundError):
        api.create_commit(REPO, [CommitOperationDelete("absent")], commit_message="m")
    for token in (None, False):
        with pytest.raises(RepositoryNotFoundError):
            hf_hub_download("user/absent", "config.json", token=token)
    with pytest.raises(HfHubHTTPError, match="does not speak GET /api/datasets/user/repo"):
        api.dataset_info(REPO)


def test_files_are_deleted(server, api, folder):
    api.upload_folder(repo_id=REPO, folder_path=folder)
    gone = [CommitOperationDelete("config.json"), CommitOperationDelete("sub/")]
    api.create_commit(REPO, gone, commit_message="less")
    assert set(server.files(REPO)) == {".gitattributes", "README.md", "model.safetensors"}


def test_a_commit_on_another_parent_is_refused(server, api):
    before = server.commits(REPO)[0].sha
    push(api, a=b"1")
    with pytest.raises(HfHubHTTPError, match="A commit has happened since") as refused:
        api.create_commit(REPO, [add("a.txt", b"2")], commit_message="m", parent_commit=before)
    assert refused.value.response.status_code == 412
    assert server.files(REPO)["a.txt"] == b"1"
    now = server.commits(REPO)[0].sha
    api.create_commit(REPO, [add("a.txt", b"2")], commit_message="m", parent_commit=now[:7])
    assert server.files(REPO)["a.txt"] == b"2"


def test_branches_and_tags(server, api):
    first = push(api, a=b"1").oid
    api.create_tag(REPO, tag="v1")
    api.create_branch(REPO, branch="next/one")
    api.create_branch(REPO, branch="next/one", exist_ok=True)
    commit = api.create_commit(
        REPO, [add("a.txt", b"2")], commit_message="elsewhere", revision="next/one"
    )
    assert api.model_info(REPO, revision="next/one").sha == commit.oid
    assert api.model_info(REPO).sha == api.model_info(REPO, revision="v1").sha == first
    refs = api.list_repo_refs(REPO)
    assert {ref.name: ref.target_commit for ref in refs.branches} == {
        "main": first,
        "next/one": commit.oid,
    }
    assert [(ref.name, ref.target_commit) for ref in refs.tags] == [("v1", first)]
    assert Path(hf_hub_download(REPO, "a.txt", revision="next/one")).read_bytes() == b"2"
    assert Path(hf_hub_download(REPO, "a.txt", revision="v1")).read_bytes() == b"1"
    api.delete_branch(REPO, branch="next/one")
    with pytest.raises(RevisionNotFoundError):
        api.model_info(REPO, revision="next/one")
    assert api.model_info(REPO, revision=commit.oid).sha == commit.oid


def test_downloads_equal_what_was_pushed(server, api, folder, tmp_path):
    old = api.upload_folder(repo_id=REPO, folder_path=folder).oid
    before = contents(folder)
    (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])
    new = api.upload_folder(repo_id=REPO, folder_path=folder).oid
    for revision, expected in ((old, before), ("main", contents(folder)), (new, contents(folder))):
        cache = tmp_path / f"cache-{revision}"
        for name, data in expected.items():
            path = hf_hub_download(REPO, name, revision=revision, cache_dir=cache)
            assert Path(path).read_bytes() == data
        arrived = contents(snapshot_download(REPO, revision=revision, cache_dir=cache))
        arrived.pop(".gitattributes")
        assert arrived == expected


def test_a_part_of_a_file_is_served(server, api):
    push(api, a=b"0123456789")
    url = f"{server.endpoint}/{REPO}/resolve/main/a.txt"
    for asked, part in (("2-4", b"234"), ("7-", b"789"), ("-2", b"89"), ("8-99", b"89")):
        answer = get_session().get(url, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, part)
    assert get_session().get(url, headers={"Range": "bytes=10-"}).status_code == 416


def test_a_gated_repository(server, api, tmp_path):
    push(api, a=b"1")
    server.gate(REPO, readers=["friend"])
    for token, status in ((False, 401), (TOKEN, 403)):
        with pytest.raises(GatedRepoError) as refused:
            hf_hub_download(REPO, "a.txt", token=token)
        assert refused.value.response.status_code == status
        with pytest.raises(GatedRepoError):
            snapshot_download(REPO, token=token)
        with pytest.raises(OSError, match="gated repo"):
            AutoConfig.from_pretrained(REPO, token=token)
    assert api.model_info(REPO).gated == "manual"
    assert Path(hf_hub_download(REPO, "a.txt", token="hf_friend")).read_bytes() == b"1"


@pytest.mark.parametrize("n_bytes", [0, 5000, len(WEIGHTS) + 10])
def test_a_dropped_connection_leaves_the_last_commit(server, api, folder, tmp_path, n_bytes):
    """Cut before the first byte, amid the weights, and amid the commit that follows them."""
    commit = api.upload_folder(repo_id=REPO, folder_path=folder)
    before = contents(folder)
    (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])
    (folder / "config.json").write_text('{"a": 2}')
    server.drop_upload_after(n_bytes)
    with pytest.raises(Exception, match=r"Error while uploading|[Dd]isconnected|reset|Broken pipe"):
        api.upload_folder(repo_id=REPO, folder_path=folder)
    assert server.commits(REPO)[0].sha == commit.oid
    arrived = contents(snapshot_download(REPO, cache_dir=tmp_path / "cache"))
    assert {name: arrived[name] for name in before} == before
    server.drop_upload_after(None)
    api.upload_folder(repo_id=REPO, folder_path=folder)
    assert server.files(REPO)["model.safetensors"] == WEIGHTS[::-1]


def test_only_whole_objects_are_kept(server, api):
    oid = "0" * 64
    answer = get_session().put(f"{server.endpoint}/{REPO}/lfs/{oid}", content=b"other bytes")
    assert answer.status_code == 400
    lines = [
        {"key": "header", "value": {"summary": "names what is not there"}},
        {"key": "lfsFile", "value": {"path": "a.bin", "oid": oid, "algo": "sha256"}},
    ]
    answer = get_session().post(
        f"{server.endpoint}/api/models/{REPO}/commit/main",
        content=b"\n".join(json.dumps(line).encode() for line in lines),
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert answer.status_code == 400
    assert len(server.commits(REPO)) == 1


def test_the_client_survives_one_cut(server, api, folder):
    server.drop_upload_after(5000, times=1)
    api.upload_folder(repo_id=REPO, folder_path=folder)
    assert server.files(REPO)["model.safetensors"] == WEIGHTS


def test_failures_on_purpose(server, api):
    server.fail_next(r"POST .*/commit/main", 500)
    with pytest.raises(HfHubHTTPError, match="on purpose"):
        push(api, a=b"1")
    push(api, a=b"1")
    # A download asks once in haste and, with nothing in the cache, six times more in earnest.
    server.fail_next("HEAD .*resolve", 503, times=7)
    with pytest.raises(OSError, match="locate the file"):
        hf_hub_download(REPO, "a.txt")


def test_corrupt_bytes_are_served(server, api, folder):
    api.upload_folder(repo_id=REPO, folder_path=folder)
    server.corrupt(REPO, "model.safetensors")
    served = Path(hf_hub_download(REPO, "model.safetensors")).read_bytes()
    assert len(served) == len(WEIGHTS)
    assert served != WEIGHTS
    assert server.files(REPO)["model.safetensors"] == WEIGHTS


def all_at_once(api, names, parent=None):
    """Everybody pushes weights and a config that belong together; the status of each refusal."""
    start = threading.Barrier(len(names))

    def one(name):
        data = name.encode()
        operations = [add("weights.bin", data * 5000), add("config.json", data), add(name, data)]
        start.wait()
        try:
            api.create_commit(REPO, operations, commit_message=name, parent_commit=parent)
        except HfHubHTTPError as error:
            return error.response.status_code

    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(one, names))


@pytest.fixture
def eager_threads():
    """Python changes threads so often that one which must not be disturbed would be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_pushes_at_once_follow_one_another(server, api, eager_threads):
    assert all_at_once(api, "abcdef") == [None] * 6
    assert sorted(commit.title for commit in server.commits(REPO)[:-1]) == list("abcdef")
    files = contents(snapshot_download(REPO))
    assert files["weights.bin"] == files["config.json"] * 5000
    assert all(files[name] == name.encode() for name in "abcdef")


def test_of_two_pushes_on_one_parent_the_second_is_refused(server, api, eager_threads):
    parent = server.commits(REPO)[0]
    assert sorted(all_at_once(api, "ab", parent.sha), key=bool) == [None, 412]
    newest = server.commits(REPO)[0]
    assert newest.parent is parent
    files = contents(snapshot_download(REPO))
    assert files["config.json"] == newest.title.encode()
    assert files["weights.bin"] == files["config.json"] * 5000


def test_transformers_in_this_process(server, api, tmp_path):
    commit = LlamaConfig(hidden_size=8, num_attention_heads=2).push_to_hub(REPO)
    assert AutoConfig.from_pretrained(REPO).hidden_size == 8
    assert server.commits(REPO)[0].sha == commit.oid
    LlamaConfig(hidden_size=16, num_attention_heads=2).push_to_hub(REPO, revision="wide")
    assert AutoConfig.from_pretrained(REPO, revision="wide").hidden_size == 16
    assert AutoConfig.from_pretrained(REPO, revision=commit.oid).hidden_size == 8


def test_transformers_in_another_process(server, api, tmp_path):
    LlamaConfig(hidden_size=8, num_attention_heads=2).save_pretrained(tmp_path / "saved")
    sha = api.upload_folder(repo_id=REPO, folder_path=tmp_path / "saved").oid
    api.create_commit(REPO, [CommitOperationDelete("config.json")], commit_message="not here")
    run = subprocess.run(
        [sys.executable, "-c", READER, sha],
        capture_output=True,
        text=True,
        env=environment(server, tmp_path / "empty"),
        cwd=tmp_path,
    )
    assert run.stdout.split() == ["llama", "8"], run.stderr[-3000:]
    assert list((tmp_path / "empty" / "hub").glob("models--user--repo/snapshots/*")) == [
        tmp_path / "empty" / "hub" / "models--user--repo" / "snapshots" / sha
    ]


def test_online_lasts_as_long_as_its_test(tmp_path):
    def state():
        return constants.ENDPOINT, constants.HF_HUB_CACHE, is_offline_mode(), dict(os.environ)

    before = state()
    with HubServer() as server, pytest.MonkeyPatch.context() as patch:
        online(patch, server, tmp_path / "home")
        assert state()[:3] == (server.endpoint, str(tmp_path / "home" / "hub"), False)
    assert state() == before
