"""Publishing with the Hub's real client, against a small Hub on loopback."""

import io
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import redirect_stdout

import pytest
import torch
from huggingface_hub import HfApi

import hf_tformer
from hf_tformer import publish
from hf_tformer.__main__ import main
from hf_tformer.publishing import PublishError, upload
from hf_tformer.publishing.card import write_card
from support.cards import each_prints, one_after_another, programs_of
from support.fallen_walls import move_to
from support.families import DECODER, ENCODER, SEQ2SEQ, WRITERS, decoder_first
from support.hub_server import TOKEN, HubServer, environment, online

pytestmark = pytest.mark.usefixtures("warm_python", "read_here")

ME = "user/tiny"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with HubServer() as server:
        online(monkeypatch, server, tmp_path / "home")
        yield server


def small_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "Some", "text"])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **names)


def run_elsewhere(hub, home, code):
    """A reader with empty caches, who cannot import the package unless the code asks for it."""
    hide = "" if "import hf_tformer" in code else "import sys; sys.modules['hf_tformer'] = None\n"
    run = subprocess.run(
        [sys.executable, "-c", hide + code],
        capture_output=True,
        text=True,
        env=environment(hub, home, token=None),
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@decoder_first
def test_a_published_model_is_loaded_by_commit_and_by_branch_by_someone_else(family, hub, tmp_path):
    model = family.build()
    published = publish(model, ME, tokenizer=small_tokenizer(), token=TOKEN)
    ids = torch.tensor([[3, 4, 3]])
    target = family.target(ids)
    expected = model(input_ids=ids, **target).logits.sum().item()
    auto = family.auto.__name__
    revisions = (published.commit, "main")
    code = f"""
import torch
from transformers import {auto}
ids = torch.tensor([[3, 4, 3]])
for revision in {revisions}:
    model = {auto}.from_pretrained("{ME}", revision=revision, trust_remote_code=True).eval()
    print(model(input_ids=ids{", decoder_input_ids=ids" if target else ""}).logits.sum().item())
"""
    found = map(float, run_elsewhere(hub, tmp_path / "home of a reader", code).split())
    assert list(found) == pytest.approx([expected] * len(revisions), rel=1e-4)


def test_everything_arrives_in_one_commit_and_a_second_one_pins_it(hub):
    published = publish(DECODER.build(), ME, tokenizer=small_tokenizer(), token=TOKEN)
    newest, first, *_ = hub.commits(ME)
    assert first.sha == published.commit
    assert set(published.files) <= set(hub.files(ME, published.commit))
    changed = {
        name
        for name, content in hub.files(ME).items()
        if hub.files(ME, published.commit).get(name) != content
    }
    assert changed == {"README.md"}
    assert newest.sha != first.sha


@decoder_first
def test_the_card_says_what_was_given_and_its_programs_run(family, hub, tmp_path):
    publish(
        family.build(),
        ME,
        tokenizer=small_tokenizer(),
        token=TOKEN,
        description="A model of nothing.",
        training="Not at all.",
        metrics={"loss": 4.2},
        license="mit",
        language="de",
        tags=["tiny"],
    )
    card = hub.files(ME)["README.md"].decode()
    commit = hub.commits(ME)[1].sha
    for words in (
        "library_name: transformers",
        "license: mit",
        "language: de",
        "- tiny",
        "| loss | 4.2 |",
    ):
        assert words in card
    for words in (
        "A model of nothing.",
        "Not at all.",
        "| loss | 4.2 |",
        "| hidden_size | 36 |",
        f'"{commit}"',
    ):
        assert words in card
    for name, content in hub.files(ME).items():
        if name.endswith(".py"):
            assert re.search(rf"`{name}` \| `{digest(content)}`", card), name
    programs = programs_of(card)
    assert len(programs) == 2
    assert all(commit in program for program in programs)
    printed = run_elsewhere(hub, tmp_path / "reader", one_after_another(programs))
    assert each_prints(programs, printed)


@pytest.mark.parametrize(
    ("head", "task"),
    [
        ("ForMaskedLM", "fill-mask"),
        ("ForSequenceClassification", "text-classification"),
        ("ForTokenClassification", "token-classification"),
        ("ForQuestionAnswering", "question-answering"),
        ("Model", "feature-extraction"),
    ],
)
def test_the_card_of_a_head_names_its_task_and_shows_its_use(head, task, tmp_path):
    model = ENCODER.build(model_class=getattr(hf_tformer, f"TformerEncoder{head}"), num_labels=3)
    model.save_pretrained(tmp_path)
    card = str(write_card(tmp_path, str(tmp_path), parameters=1))
    assert f"pipeline_tag: {task}" in card
    program = programs_of(card)[1].replace(', revision="main"', "")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(program, {})
    answer = printed.getvalue().strip()
    if task.endswith("-classification"):
        expected = model(torch.tensor([[3, 4, 5]])).logits.argmax(-1).flatten().tolist()
        assert answer == str([f"LABEL_{i}" for i in expected])
    assert answer


def digest(content):
    import hashlib

    return hashlib.sha256(content).hexdigest()


def test_the_card_of_every_head_has_programs_that_run(hub, tmp_path):
    programs = []
    for name in ("SequenceClassification", "TokenClassification", "QuestionAnswering", ""):
        class_name = f"TformerDecoderFor{name}" if name else "TformerDecoderModel"
        model = DECODER.build(model_class=getattr(hf_tformer, class_name))
        publish(model, repository := f"user/{class_name}", token=TOKEN, verify=False)
        programs += programs_of(hub.files(repository)["README.md"].decode())[:1]
        auto = f"AutoModelFor{name}" if name else "AutoModel"
        assert f"{auto}.from_pretrained" in programs[-1]
    printed = run_elsewhere(hub, tmp_path / "reader", one_after_another(programs))
    assert each_prints(programs, printed)


def test_a_branch_and_an_existing_repository_are_published_to(hub):
    publish(DECODER.build(), ME, token=TOKEN, verify=False)
    before = hub.files(ME)
    other = publish(SEQ2SEQ.build(), ME, token=TOKEN, revision="second", verify=False)
    assert hub.files(ME) == before
    assert other.commit in [commit.sha for commit in hub.commits(ME, "second")]
    left = {name for name in hub.files(ME, "second") if name.endswith((".py", ".safetensors"))}
    assert left <= set(other.files), "code of the model that was there before is still there"


def test_a_folder_is_published_from_the_command_line(hub, tmp_path, monkeypatch, capsys):
    DECODER.build().save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "optimizer.pt").write_bytes(b"not for the Hub")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert main(["publish", str(tmp_path / "saved"), ME, "--private", "--license", "mit"]) == 0
    output = capsys.readouterr().out
    assert hub.commits(ME)[1].sha in output
    assert "loaded back" in output
    assert "optimizer.pt" not in hub.files(ME)


def test_a_card_of_ones_own_is_published_as_it_is(hub, tmp_path):
    DECODER.build().save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text("# Mine")
    publish(tmp_path, ME, token=TOKEN, verify=False)
    assert hub.files(ME)["README.md"] == b"# Mine"
    assert (tmp_path / "README.md").read_text() == "# Mine"


def test_a_dry_run_sends_nothing_and_leaves_the_folder_alone(hub, tmp_path, capsys):
    DECODER.build().save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["publish", str(tmp_path), ME, "--dry-run"]) == 0
    assert "nothing was sent" in capsys.readouterr().out
    assert not hub.log
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


NOT_OF_A_MODEL = {
    ".credentials.json": "{}",
    ".env": "TOKEN=1",
    "my_token.txt": "hf_secret",
    "token.json": "{}",
    "notes.txt": "mine",
    "train_secret.py": "KEY = 1",
    "trainer_state.json": "{}",
    "model_before.safetensors": "",
    "optimizer.pt": "",
    "tokenizer.model.bak": "",
    "helper.pyc": "",
    "checkpoint-5/config.json": "{}",
    ".cache/token": "hf_secret",
}


def test_only_what_belongs_to_a_model_is_sent_and_the_rest_is_named(hub, tmp_path, capsys):
    model = tmp_path / "saved"
    DECODER.build().save_pretrained(model)
    for name, text in NOT_OF_A_MODEL.items():
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).write_text(text)
    belongs = ("vocab.txt", "merges.txt", "source.spm", "chat_template.jinja", "LICENSE")
    for name in belongs:
        (model / name).write_text("belongs")
    assert main(["publish", str(model), ME, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    published = publish(model, ME, token=TOKEN, verify=False)
    left_out = {name.partition("/")[0] for name in NOT_OF_A_MODEL}
    assert {name.rstrip("/") for name in published.left_out} == left_out
    assert all(f"left out: {name}\n" in printed for name in published.left_out)
    assert not left_out & {name.partition("/")[0] for name in hub.files(ME)}
    assert set(belongs) <= set(hub.files(ME))
    assert {"attention.py", "model.safetensors", "config.json"} <= set(hub.files(ME))


def test_code_that_is_imported_belongs_to_the_model_however_far_away(hub, tmp_path):
    DECODER.build().save_pretrained(tmp_path)
    with (tmp_path / "layers.py").open("a") as code:
        code.write("\n\ndef late():\n    from .first import x\n    return x\n")
    (tmp_path / "first.py").write_text("from .second import x\n")
    (tmp_path / "second.py").write_text("x = 1\n")
    (tmp_path / "third.py").write_text("from .second import x\n")
    published = publish(tmp_path, ME, token=TOKEN, verify=False)
    assert {"first.py", "second.py"} <= set(published.files)
    assert published.left_out == ["third.py"]


def test_code_that_a_link_brings_in_is_refused_and_not_left_out(hub, tmp_path):
    folder = tmp_path / "saved"
    DECODER.build().save_pretrained(folder)
    (folder / "norms.py").rename(tmp_path / "norms.py")
    (folder / "norms.py").symlink_to(tmp_path / "norms.py")
    with pytest.raises(PublishError, match="leads out of its folder"):
        publish(folder, ME, token=TOKEN, dry_run=True)


# What arrived is loaded behind walls


SPY = """
import json, os, socket
found = {{}}
found["environment"] = [name for name, value in os.environ.items() if value == {token!r}]
for name, path in {paths!r}.items():
    try:
        found[name] = open(path).read()
    except OSError:
        pass
try:
    socket.create_connection(("127.0.0.1", {port}))
    found["network"] = "reached"
except OSError:
    pass
if found != {{"environment": []}}:
    raise RuntimeError(json.dumps(found))
"""


def test_what_arrived_is_loaded_without_the_token_and_without_a_network(hub, tmp_path, monkeypatch):
    """Reading would refuse this code, and is taken away here: the walls alone remain."""
    monkeypatch.setattr(upload, "refuse_dangerous", lambda *_, **__: None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    secret = tmp_path / "home" / "token"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text(TOKEN)
    model = tmp_path / "saved"
    DECODER.build().save_pretrained(model)
    paths = {"file": str(secret), "caller": f"/proc/{os.getpid()}/environ"}
    port = int(hub.endpoint.rpartition(":")[2])
    spy = SPY.format(token=TOKEN, paths=paths, port=port)
    (model / "layers.py").write_text((model / "layers.py").read_text() + spy)
    assert publish(model, ME, token=TOKEN).commit


def test_dangerous_code_is_refused_before_anything_is_sent(hub, tmp_path):
    DECODER.build().save_pretrained(tmp_path)
    with (tmp_path / "layers.py").open("a") as code:
        code.write("\nimport subprocess\n")
    with pytest.raises(
        PublishError, match=r"nothing was sent: no code was run.*safety.*layers\.py"
    ):
        publish(tmp_path, ME, token=TOKEN)
    assert not hub.log


def test_what_the_repository_had_before_is_read_before_anything_is_run(hub, tmp_path):
    """Code that was there is removed; an adapter would load another model, with its code."""
    DECODER.build().save_pretrained(tmp_path)
    publish(tmp_path, ME, token=TOKEN, verify=False)
    HfApi(token=TOKEN).upload_file(
        path_or_fileobj=b'{"base_model_name_or_path": "nobody/nothing"}',
        path_in_repo="adapter_config.json",
        repo_id=ME,
    )
    words = r"arrived unverified: no code was run.*foreign code: adapter_config"
    with pytest.raises(PublishError, match=words):
        publish(tmp_path, ME, token=TOKEN)


def test_where_walls_are_missing_unknown_code_is_refused_and_ours_is_published(
    hub, tmp_path, monkeypatch, capsys
):
    words = move_to("a container", monkeypatch, tmp_path)
    model = tmp_path / "saved"
    DECODER.build().save_pretrained(model)
    assert publish(model, ME, token=TOKEN).commit
    with (model / "layers.py").open("a") as code:
        code.write("\n# another release\n")
    hub.log.clear()
    assert main(["publish", str(model), ME]) == 1
    error = capsys.readouterr().err
    assert "nothing was sent: no code was run, because walls are missing" in error
    assert words in error
    assert not hub.log
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert main(["publish", str(model), ME, "--without-walls"]) == 0
    assert "loaded back" in capsys.readouterr().out


def test_code_that_does_not_load_is_told_with_its_error(hub, tmp_path):
    DECODER.build().save_pretrained(tmp_path)
    with (tmp_path / "layers.py").open("a") as code:
        code.write("\nfrom torch import gone_since\n")
    with pytest.raises(PublishError, match="does not load: ImportError: cannot import name 'gone"):
        publish(tmp_path, ME, token=TOKEN)


def spoil(folder, how):
    if how == "no config":
        (folder / "config.json").unlink()
    elif how == "no code":
        (folder / "layers.py").unlink()
        (folder / "modeling_decoder.py").unlink()
    elif how == "no weights":
        (folder / "model.safetensors").unlink()
    elif how == "someone else's":
        (folder / "config.json").write_text('{"model_type": "llama"}')
    elif how == "clashing ids":
        tokenizer = small_tokenizer()
        tokenizer.eos_token = "text"
        tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("no config", "no config.json"),
        ("no code", "modeling_decoder.py.*save the model again"),
        ("no weights", "no safetensors"),
        ("someone else's", "model_type is 'llama'"),
        ("clashing ids", "eos_token_id is 4 in the tokenizer but 2"),
    ],
)
def test_an_incomplete_folder_is_refused_before_anything_is_sent(hub, tmp_path, how, words):
    DECODER.build().save_pretrained(tmp_path)
    spoil(tmp_path, how)
    with pytest.raises(PublishError, match=words):
        publish(tmp_path, ME, token=TOKEN)
    assert not hub.log


def test_a_quantised_model_is_refused_until_it_is_a_folder_whose_card_says_so(hub, tmp_path):
    model = DECODER.build()
    model.is_quantized = True
    with pytest.raises(PublishError, match="save it with save_pretrained as soon as"):
        publish(model, ME, token=TOKEN)
    assert not hub.log
    model.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    model.save_pretrained(tmp_path)
    publish(tmp_path, ME, token=TOKEN, verify=False)
    card = hub.files(ME)["README.md"].decode()
    assert "with weights quantised by bitsandbytes, whose package opens them" in card
    assert "parameters" not in card


def test_a_folder_that_does_not_exist_is_refused_in_one_line(hub, capsys):
    assert main(["publish", "nowhere", ME]) == 1
    assert capsys.readouterr().err == (
        "error: nowhere is not a folder: give one that save_pretrained wrote\n"
    )


def test_a_published_repository_passes_the_check(hub, capsys):
    publish(DECODER.build(), ME, tokenizer=small_tokenizer(), token=TOKEN, verify=False)
    assert main(["check", ME]) == 0
    output = capsys.readouterr().out
    assert "equal to the installed hf_tformer" in output
    assert "0 warnings, 0 failed, 0 skipped" in output


def test_the_push_that_every_model_has_brings_the_code_along(family, hub):
    family.build().push_to_hub(ME, token=TOKEN)
    files = hub.files(ME)
    auto_map = json.loads(files["config.json"])["auto_map"]
    assert {reference.split(".")[0] + ".py" for reference in auto_map.values()} <= set(files)
    assert {"model.safetensors", "attention.py"} <= set(files)
    assert ("generation_config.json" in files) == (family in WRITERS)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda hub: hub.drop_upload_after(5000), "connection"),
        (lambda hub: hub.fail_next("POST /api/models/user/tiny/commit", 412), "at the same moment"),
        (lambda hub: hub.fail_next("POST /api/models/user/tiny/commit", 403), "refused"),
        (lambda hub: hub.fail_next("POST /api/models/user/tiny/commit", 400), "answered 400"),
    ],
    ids=["dropped connection", "overtaken", "not allowed", "refused by the Hub"],
)
def test_a_failed_upload_is_one_sentence_and_leaves_what_was_there(hub, fault, words):
    publish(DECODER.build(), ME, token=TOKEN, verify=False)
    before, commits = hub.files(ME), len(hub.commits(ME))
    fault(hub)
    with pytest.raises(PublishError, match=rf"{words}.*nothing was changed") as caught:
        publish(DECODER.build(hidden_size=60), ME, token=TOKEN, verify=False)
    assert "\n" not in str(caught.value)
    assert (hub.files(ME), len(hub.commits(ME))) == (before, commits)


def test_a_repository_of_someone_else_is_not_written_to(hub):
    with pytest.raises(PublishError, match="nothing was changed"):
        publish(DECODER.build(), "someone/else", token=TOKEN, verify=False)


def test_damage_on_the_way_is_found_by_reading_back(hub):
    hub.corrupt(ME, "model.safetensors")
    with pytest.raises(PublishError, match=r"model.safetensors.* arrived damaged"):
        publish(DECODER.build(), ME, token=TOKEN)


def test_a_gated_repository_is_explained(hub, tmp_path):
    publish(DECODER.build(), ME, token=TOKEN, verify=False)
    hub.gate(ME)
    with pytest.raises(PublishError, match="gated"):
        publish(DECODER.build(), ME, token=TOKEN)


def test_two_publications_at_once_leave_one_that_loads(hub, tmp_path):
    outcomes = []

    def one(seed):
        try:
            outcomes.append(publish(DECODER.build(), ME, token=TOKEN, verify=False).commit)
        except PublishError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commits = {commit.sha for commit in hub.commits(ME)}
    assert any(outcome in commits for outcome in outcomes)
    assert all(outcome in commits or "at the same moment" in outcome for outcome in outcomes)
    program, *_ = programs_of(hub.files(ME)["README.md"].decode())
    assert run_elsewhere(hub, tmp_path / "reader", program).strip()


def test_a_full_disk_is_one_sentence_and_nothing_is_left(hub, monkeypatch, tmp_path):
    """Staging writes to a temporary folder; there is no room for it."""

    def no_room(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(upload.tempfile, "tempdir", str(tmp_path / "scratch"))
    model = DECODER.build()
    monkeypatch.setattr(type(model), "save_pretrained", no_room)
    with pytest.raises(PublishError, match=r"No space left on device.*nothing was changed"):
        publish(model, ME, token=TOKEN)
    assert not list((tmp_path / "scratch").iterdir())
    assert not hub.log
