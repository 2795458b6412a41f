"""Nothing outside of a folder is read, no pipe is waited for, and damage is told before it is used.

The same folders are converted and published.
"""

import json
import os
import shutil
import socket
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conversion import ConversionError, import_checkpoint
from conversion.command import main as convert
from hf_tformer.__main__ import main as tformer
from hf_tformer.path_safety import printable
from hf_tformer.publishing import PublishError, publish
from support.converting import CASES, edit_config, save_theirs
from support.damage import flip, largest_record
from support.families import DECODER

SECRET = "root:x:0:0 is nobody's business\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of theirs and one of ours, never written to."""
    place = tmp_path_factory.mktemp("saved")
    save_theirs(CASES["llama tied"], place / "theirs")
    DECODER.build().save_pretrained(place / "ours")
    return place


@pytest.fixture
def theirs(saved, tmp_path):
    return shutil.copytree(saved / "theirs", tmp_path / "theirs")


@pytest.fixture(params=["converted", "published"])
def verb(request, saved, tmp_path):
    """A folder, and what reads it: gives the names of all that would be passed on."""
    if request.param == "published":
        folder = shutil.copytree(saved / "ours", tmp_path / "folder")
        return folder, lambda place: publish(place, "user/tiny", dry_run=True).files
    folder = shutil.copytree(saved / "theirs", tmp_path / "folder")

    def run(place):
        import_checkpoint(place, tmp_path / "result", verify=False)
        return [path.name for path in (tmp_path / "result").iterdir()]

    return folder, run


def link_out(folder):
    (folder.parent / "secret").write_text(SECRET)
    (folder / "vocab.txt").symlink_to(folder.parent / "secret")


def chain_out(folder):
    (folder.parent / "secret").write_text(SECRET)
    (folder / "first").symlink_to("second")
    (folder / "second").symlink_to("../secret")
    (folder / "vocab.txt").symlink_to("first")


def dots_out(folder):
    """By its name the target lies inside."""
    (folder.parent / "secret").write_text(SECRET)
    (folder / "vocab.txt").symlink_to(f"{folder}/../secret")


def through_a_folder(folder):
    (folder.parent / "secret").write_text(SECRET)
    (folder / "sub").symlink_to(folder.parent)
    (folder / "vocab.txt").symlink_to("sub/secret")


def dangling(folder):
    (folder / "vocab.txt").symlink_to("nowhere")


def round_in_circles(folder):
    (folder / "vocab.txt").symlink_to("vocab.txt")


def pipe(folder):
    os.mkfifo(folder / "vocab.txt")


def link_to_a_pipe(folder):
    os.mkfifo(folder / "inside")
    (folder / "vocab.txt").symlink_to("inside")


def link_to_a_device(folder):
    (folder / "vocab.txt").symlink_to("/dev/zero")


def bound_socket(folder):
    at_home = Path.cwd()
    os.chdir(folder)  # the path of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("vocab.txt")
    finally:
        os.chdir(at_home)


def folder_by_the_name_of_a_file(folder):
    (folder / "vocab.txt").mkdir()


def link_to_a_folder(folder):
    (folder / "sub").mkdir()
    (folder / "vocab.txt").symlink_to("sub")


WAYS = [
    (link_out, "leads out of its folder"),
    (chain_out, "leads out of its folder"),
    (dots_out, "leads out of its folder"),
    (through_a_folder, "leads out of its folder"),
    (link_to_a_device, "leads out of its folder"),
    (dangling, "cannot be read"),
    (round_in_circles, "cannot be read"),
    (pipe, "is a pipe"),
    (link_to_a_pipe, "is a pipe"),
    (bound_socket, "is a socket"),
    (folder_by_the_name_of_a_file, "is a folder"),
    (link_to_a_folder, "is a folder"),
]


@pytest.mark.parametrize(("spoil", "words"), WAYS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_no_file_inside_the_folder_is_refused_by_name(spoil, words, verb, tmp_path):
    folder, run = verb
    spoil(folder)
    with pytest.raises((ConversionError, PublishError), match=f"vocab.txt {words}"):
        run(folder)
    assert not (tmp_path / "result").exists()


def test_a_link_inside_the_folder_and_one_to_the_folder_are_followed(verb, tmp_path):
    folder, run = verb
    (folder / "model.safetensors").rename(folder / "weights")
    (folder / "model.safetensors").symlink_to("weights")
    (tmp_path / "link").symlink_to(folder)
    assert "model.safetensors" in run(tmp_path / "link")


def as_in_the_cache(folder, place):
    """The folder as huggingface_hub keeps it: links into the blobs of its repository."""
    snapshot, blobs = place / "snapshots" / ("a" * 40), place / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / f"{number:040}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040}")
    return snapshot


def test_a_snapshot_of_the_hub_is_read_through_its_links(verb, tmp_path):
    folder, run = verb
    assert "model.safetensors" in run(as_in_the_cache(folder, tmp_path / "models--user--tiny"))


def test_a_snapshot_does_not_read_another_repository(verb, tmp_path):
    folder, run = verb
    snapshot = as_in_the_cache(folder, tmp_path / "models--user--tiny")
    other = tmp_path / "models--someone--private" / "blobs"
    other.mkdir(parents=True)
    (other / "secret").write_text(SECRET)
    (snapshot / "vocab.txt").symlink_to("../../../models--someone--private/blobs/secret")
    with pytest.raises((ConversionError, PublishError), match=r"vocab.txt leads out"):
        run(snapshot)


def test_links_that_look_like_a_snapshot_lead_nowhere_else(verb, tmp_path):
    folder, run = verb
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text(SECRET)
    snapshot = as_in_the_cache(folder, tmp_path / "models--user--tiny")
    shutil.move(tmp_path / "models--user--tiny/blobs", tmp_path / "elsewhere/blobs")
    (tmp_path / "models--user--tiny/blobs").symlink_to("../elsewhere/blobs")
    with pytest.raises((ConversionError, PublishError), match="leads out"):
        run(snapshot)


@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "sub/../../secret", "..", "linked"])
def test_an_index_names_files_inside_its_folder(name, suffix, theirs):
    (theirs.parent / "secret").write_text(SECRET)
    (theirs / "linked").symlink_to("../secret")
    (theirs / "model.safetensors").unlink()
    stem = "model.safetensors" if suffix == "safetensors" else "pytorch_model.bin"
    index = {"weight_map": {"model.norm.weight": name}}
    (theirs / f"{stem}.index.json").write_text(json.dumps(index))
    with pytest.raises(ConversionError, match=r"does not lie beside|is missing|leads out"):
        import_checkpoint(theirs, theirs.parent / "ours")


def test_templates_of_chats_come_along_from_inside_only(theirs, tmp_path):
    templates = theirs / "additional_chat_templates"
    templates.mkdir()
    (templates / "tools.jinja").write_text("{{ messages }}")
    import_checkpoint(theirs, tmp_path / "ours", verify=False)
    assert (tmp_path / "ours/additional_chat_templates/tools.jinja").is_file()
    (tmp_path / "secret").write_text(SECRET)
    (templates / "rag.jinja").symlink_to("../../secret")
    with pytest.raises(ConversionError, match=r"rag.jinja leads out"):
        import_checkpoint(theirs, tmp_path / "second")


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 200_000, " " * (65 * 2**20), "[]"])
def test_json_that_is_too_deep_or_too_large_is_one_sentence(content, verb):
    folder, run = verb
    (folder / "config.json").write_text(content)
    with pytest.raises((ConversionError, PublishError), match=r"config.json") as caught:
        run(folder)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("dtype", ["0.5", "relu", "float33", {"a": 1}])
def test_a_type_that_torch_does_not_have_is_one_sentence(dtype, verb):
    folder, run = verb
    edit_config(folder, dtype=dtype)
    with pytest.raises((ConversionError, PublishError), match=r"dtype is .*config.json"):
        run(folder)


def test_names_and_values_are_printed_as_escapes(theirs, saved, capsys):
    """A file name may hold whatever moves the cursor, and so may a value."""
    name = "evil\n\x1b[2Jname.json"
    (theirs / name).symlink_to("/etc/passwd")
    assert convert(["import", str(theirs), str(theirs.parent / "ours")]) == 1
    ours = shutil.copytree(saved / "ours", theirs.parent / "mine")
    (ours / name).symlink_to("/etc/passwd")
    assert tformer(["publish", str(ours), "user/tiny", "--dry-run"]) == 0
    (theirs / name).unlink()
    edit_config(theirs, model_type="\x1b]0;title\x07\u202ebert")
    assert convert(["import", str(theirs), str(theirs.parent / "ours")]) == 1
    printed, told = capsys.readouterr()
    assert r"left out: evil\n\x1b[2Jname.json" in printed.splitlines()  # it belongs to no model
    assert len(told.splitlines()) == 2
    assert all(line.isprintable() for line in told.splitlines())
    assert r"evil\n\x1b[2Jname.json" in told


def test_text_that_can_be_printed_stays_as_it_is():
    assert printable("größe 文 — ok") == "größe 文 — ok"
    assert printable("a\tb\x9b\udcff") == r"a\tb\x9b\udcff"
    assert len(printable("endless" * 10**6 + ": choose another")) < 1300
    assert printable("endless" * 10**6 + ": choose another").endswith(": choose another")


# Damage


def as_pickle(theirs):
    state = load_file(theirs / "model.safetensors")
    (theirs / "model.safetensors").unlink()
    torch.save(state, theirs / "pytorch_model.bin")
    return theirs / "pytorch_model.bin"


def test_one_changed_bit_of_a_pickle_is_found_by_its_checksum(theirs):
    path = as_pickle(theirs)
    import_checkpoint(theirs, theirs.parent / "whole")
    name, offset = largest_record(path)
    flip(path, offset + 5)
    assert torch.load(path, weights_only=True), "torch.load itself has found it"
    with pytest.raises(ConversionError, match=rf"pytorch_model.bin is damaged, {name}"):
        import_checkpoint(theirs, theirs.parent / "ours")


def test_a_compressed_record_is_refused_by_name(theirs):
    path = as_pickle(theirs)
    with zipfile.ZipFile(path) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    name, _ = largest_record(path)
    with zipfile.ZipFile(path, "w") as archive:
        for record, content in records.items():
            archive.writestr(record, content, zipfile.ZIP_DEFLATED if record == name else None)
    with pytest.raises(ConversionError, match=rf"holds {name} compressed"):
        import_checkpoint(theirs, theirs.parent / "ours")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_record_that_stands_there_twice_is_refused_by_name(theirs):
    path = as_pickle(theirs)
    name, _ = largest_record(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"\0" * 400)
    with pytest.raises(ConversionError, match=rf"holds {name} 2 times"):
        import_checkpoint(theirs, theirs.parent / "ours")


def test_a_pickle_that_was_saved_without_checksums_is_read(theirs):
    state = torch.load(as_pickle(theirs), weights_only=True)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state, theirs / "pytorch_model.bin")
    finally:
        torch.serialization.set_crc32_options(True)
    assert import_checkpoint(theirs, theirs.parent / "ours").difference is not None


@pytest.mark.parametrize("kept", [0, 1, 100, -300, -30, -1])
def test_a_truncated_pickle_is_called_so(kept, theirs):
    path = as_pickle(theirs)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ConversionError, match=r"pytorch_model.bin is truncated"):
        import_checkpoint(theirs, theirs.parent / "ours")


SPOILED = {
    "nan": (lambda tensors: tensors["model.norm.weight"].fill_(float("nan")), "model.norm.weight"),
    "infinity": (lambda tensors: tensors["model.norm.weight"].fill_(float("inf")), "infinity"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_weights_that_are_no_numbers_are_not_published(how, saved, tmp_path):
    folder = shutil.copytree(saved / "ours", tmp_path / "folder")
    change, words = SPOILED[how]
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PublishError, match=words):
        publish(folder, "user/tiny", dry_run=True)


def cut_weights(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-10])


def name_a_shard_that_is_absent(folder):
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def break_the_tokenizer(folder):
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": 3}')


FAULTS = [
    (cut_weights, r"model.safetensors is truncated"),
    (name_a_shard_that_is_absent, r"model-00001-of-00002.safetensors"),
    (break_the_tokenizer, r"the tokenizer cannot be read"),
    (lambda folder: edit_config(folder, hidden_size="wide"), r"config.json.*hidden_size"),
    (lambda folder: edit_config(folder, model_type=["a"]), r"model_type is"),
    (lambda folder: edit_config(folder, auto_map=["a"]), r"auto_map is"),
    (
        lambda folder: edit_config(folder, auto_map={"AutoModel": "../../etc/x.Y"}),
        r"auto_map names",
    ),
    (lambda folder: edit_config(folder, auto_map={"AutoModel": [1]}), r"auto_map"),
    (lambda folder: edit_config(folder, architectures=[{}]), r"architectures"),
]


@pytest.mark.parametrize(("spoil", "words"), FAULTS, ids=lambda value: "")
def test_a_damaged_folder_is_not_published(spoil, words, saved, tmp_path):
    folder = shutil.copytree(saved / "ours", tmp_path / "folder")
    spoil(folder)
    with pytest.raises(PublishError, match=words):
        publish(folder, "user/tiny", dry_run=True)


OLD_TIES = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from conversion import Rule

class Mine(LlamaForCausalLM):
    _tied_weights_keys = ["lm_head.weight"]

RULES = (Rule("model.embed_tokens.weight", "w"),)
FAMILY = "decoder"
CONFIG = {"vocab_size": 5, "hidden_size": 4, "num_attention_heads": 1, "num_hidden_layers": 0}

def reference():
    sizes = {"vocab_size": 5, "hidden_size": 4, "num_attention_heads": 1}
    return Mine(LlamaConfig(**sizes, num_hidden_layers=1, tie_word_embeddings=True))
"""


def test_ties_as_transformers_4_wrote_them_are_told_how_to_write(tmp_path):
    from conversion.engine.user_rules import read_rules

    (tmp_path / "mine.py").write_text(OLD_TIES)
    save_file({"w": torch.ones(5, 4)}, tmp_path / "w.safetensors")
    form = read_rules(tmp_path / "mine.py", verify=True)
    with pytest.raises(ConversionError, match=r'Mine declares.*write \{"lm_head.weight": NAME\}'):
        form.load(tmp_path / "w.safetensors")


def test_a_pipe_that_the_user_names_is_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "model.pt")
    assert convert(["import", str(tmp_path / "model.pt"), str(tmp_path / "ours")]) == 1
    assert "model.pt is a pipe" in capsys.readouterr().err
