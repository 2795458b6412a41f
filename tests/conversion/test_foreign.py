"""What another program wrote is named for what it is, with the command to run first."""

import json
import re
import subprocess
import sys
import zipfile

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.command import main
from conversion.engine.foreign import IN_FILES, IN_FOLDERS
from conversion.engine.nearest import nearest
from conversion.engine.registry import FORMATS
from support.converting import CASES, assert_refused, edit_config, save_theirs
from support.plain import CASES as PLAIN

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 134\n"
PAGE = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"


def make(folder, *names):
    """A folder with these files, whose content nobody reads."""
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0\1\2\3" * 40)
    return folder


FILES = {
    "tf_model.h5": ("TensorFlow", "AutoModel.from_pretrained", "from_tf=True"),
    "flax_model.msgpack": ("Flax", "from_flax=True", "transformers 4"),
    "model.onnx": ("ONNX graph", "convert the folder that it was exported from"),
    "openvino_model.xml": ("OpenVINO", "exported from"),
    "model.pte": ("ExecuTorch", "exported from"),
    "__0_0.distcp": ("one part of a distributed checkpoint", "give its folder"),
    "model.tar": ("an archive", "unpack it"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_program_is_named_with_what_to_run_first(name, tmp_path):
    make(tmp_path, name)
    for ask in (import_checkpoint, verify):
        with pytest.raises(ConversionError) as caught:
            ask(tmp_path / name, tmp_path / "ours")
        for words in (str(tmp_path / name), *FILES[name]):
            assert words in str(caught.value)


FOLDERS = {
    "adapters of LitGPT": (["lit_model.pth.lora", "model_config.yaml"], "litgpt merge_lora"),
    "distributed checkpoint of torch": ([".metadata", "__0_0.distcp"], "dcp_to_torch"),
    "accelerate": (
        ["pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp"],
        "pytorch_model_fsdp_0 NEW",
    ),
    "DeepSpeed": (["zero_to_fp32.py", "latest", "config.json"], "deepspeed.utils.zero_to_fp32"),
    "checkpoint of DeepSpeed": (["global_step20/"], "--safe_serialization"),
    "torchtune": (["recipe_state/recipe_state.pt"], "FullModelHFCheckpointer"),
    "checkpoint of torchtune": (["hf_model_0001_0.pt", "adapter_0.pt"], "hf_model_"),
    "adapters without their model": (["adapter_model.safetensors"], "merge_and_unload()"),
    "folder of adapters": (["adapter_config.json", "adapter_model.safetensors"], "AutoPeftModel"),
    "TensorFlow": (["tf_model.h5", "config.json"], "from_tf=True"),
    "SavedModel": (["saved_model.pb"], "exported from"),
    "Flax": (["flax_model.msgpack", "config.json"], "from_flax=True"),
    "ONNX": (["model.onnx", "config.json"], "exported from"),
    "to ONNX": (["onnx/model.onnx", "config.json"], "exported from"),
    "OpenVINO": (["openvino_model.xml", "openvino_model.bin", "config.json"], "exported from"),
    "CTranslate2": (["model.bin", "shared_vocabulary.json", "config.json"], "exported from"),
    "ExecuTorch": (["model.pte"], "exported from"),
    "sentence-transformers": (
        ["modules.json", "0_Transformer/config.json", "0_Transformer/model.safetensors"],
        "SentenceTransformer(",
    ),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_of_another_program_is_named_with_what_to_run_first(what, tmp_path):
    names, command = FOLDERS[what]
    make(tmp_path / "theirs", *names)
    if "config.json" in names:
        (tmp_path / "theirs/config.json").write_text('{"architectures": ["TFBertForMaskedLM"]}')
    assert_refused(tmp_path, f"{tmp_path / 'theirs'} is ", what, command)
    with pytest.raises(ConversionError, match=what):
        verify(tmp_path / "theirs", tmp_path / "theirs")
    with pytest.raises(ConversionError, match=what):
        export_checkpoint(tmp_path / "theirs", tmp_path / "ours", to="llama")


def test_every_row_of_the_tables_has_an_example_here():
    for row in IN_FOLDERS:
        assert any(what in row.what for what in (*FOLDERS, "GGUF")), row
    endings = {f".{name.rpartition('.')[2]}" for name in FILES}
    rest = [row.what for row in IN_FILES if endings.isdisjoint(row.marks)]
    assert rest == ["a GGUF file", "a program of torch.export"]
    assert all(row.remedy for row in (*IN_FILES, *IN_FOLDERS))


def test_the_class_of_pytorch_is_named_for_files_of_tensorflow(tmp_path):
    make(tmp_path / "theirs", "tf_model.h5")
    (tmp_path / "theirs/config.json").write_text('{"architectures": ["TFBertForMaskedLM"]}')
    assert_refused(tmp_path, "run BertForMaskedLM.from_pretrained")


def test_a_folder_that_converts_may_hold_what_others_wrote_too(tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    make(tmp_path / "theirs", "tf_model.h5", "onnx/model.onnx", "zero_to_fp32.py", "q4.gguf")
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference is not None


def test_a_repository_of_the_hub_is_downloaded_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("org/some-model", "https://huggingface.co/org/some-model"):
        assert main(["import", name, "ours"]) == 1
        told = capsys.readouterr().err
        assert "hf download org/some-model --local-dir some-model" in told
        assert len(told.splitlines()) == 1


def test_an_old_name_of_the_hub_is_downloaded_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["import", "gpt2", "ours"]) == 1
    assert "hf download gpt2 --local-dir gpt2" in capsys.readouterr().err


def test_a_path_that_does_not_exist_is_named_with_the_nearest_one(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(ConversionError, match=r"chekpoint does not exist.*mean checkpoint\?"):
        import_checkpoint(tmp_path / "chekpoint", tmp_path / "ours")


def test_folders_inside_are_named_where_the_given_one_has_no_model(tmp_path):
    make(tmp_path / "theirs", "checkpoint-10/config.json", "checkpoint-20/config.json")
    assert_refused(tmp_path, "theirs/checkpoint-10 or ", "theirs/checkpoint-20")


def test_weights_without_a_configuration_are_no_folder_of_a_library(tmp_path):
    make(tmp_path / "theirs", "ckpt.pt")
    assert_refused(tmp_path, "has no config.json", "give the file", "ckpt.pt")


def test_one_file_of_a_folder_leads_to_the_folder(tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    with pytest.raises(ConversionError, match=f"give {tmp_path}/theirs"):
        import_checkpoint(tmp_path / "theirs/model.safetensors", tmp_path / "ours")


# Advice that can be followed here


def test_a_distributed_checkpoint_imports_as_the_sentence_says(tmp_path, monkeypatch):
    model, _ = PLAIN["nanogpt"].save_to(tmp_path / "plain")
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    dcp.save({"model": state}, checkpoint_id=tmp_path / "theirs", no_dist=True)
    with pytest.raises(ConversionError, match="format_utils dcp_to_torch") as caught:
        import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    command = re.search(r"`python (.*?)`", str(caught.value))[1]
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, *command.split()], check=True, capture_output=True)
    done = import_checkpoint("weights.pt", "ours", settings={"n_head": 3})
    assert done.format == "nanogpt"


def test_adapters_import_as_the_sentence_says(tmp_path, monkeypatch):
    peft = pytest.importorskip("peft")
    model = save_theirs(CASES["llama tied"], tmp_path / "base")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2))
    adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    adapted.save_pretrained(tmp_path / "theirs")
    with pytest.raises(ConversionError, match="a folder of adapters") as caught:
        import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    command = re.search(r"run (.*?) of peft", str(caught.value))[1]
    monkeypatch.chdir(tmp_path)
    exec(command, vars(peft))
    assert import_checkpoint("NEW", "ours").format == "llama"


# Wrapped weights


def test_a_lightning_checkpoint_is_unwrapped_as_the_sentence_says(tmp_path, monkeypatch):
    model, src = PLAIN["nanogpt"].save_to(tmp_path / "theirs")
    saved = torch.load(src, weights_only=True)
    state = {f"net.{name}": x for name, x in model.state_dict().items()}
    wrapped = {"pytorch-lightning_version": "2.5.0", "state_dict": state, "callbacks": {}}
    torch.save(wrapped, tmp_path / "last.ckpt")
    with pytest.raises(ConversionError, match="checkpoint of Lightning") as caught:
        import_checkpoint(tmp_path / "last.ckpt", tmp_path / "ours")
    command = str(caught.value).partition(" run ")[2].partition(", and import")[0]
    monkeypatch.chdir(tmp_path)
    exec(command, {"torch": torch})
    heads = saved.get("model_args", {}).get("n_head", 3)
    done = import_checkpoint("inner.pt", "ours", settings={"n_head": heads})
    assert done.format == "nanogpt"


class Callback:
    """An object of a program that nobody else has."""


def test_a_lightning_checkpoint_that_holds_objects_is_named_too(tmp_path):
    wrapped = {"pytorch-lightning_version": "2.5.0", "state_dict": {}, "callbacks": Callback()}
    torch.save(wrapped, tmp_path / "last.ckpt")
    with pytest.raises(ConversionError, match="checkpoint of Lightning"):
        import_checkpoint(tmp_path / "last.ckpt", tmp_path / "ours")


def test_a_prefix_before_the_names_of_a_known_layout_is_named(tmp_path):
    model, _ = PLAIN["nanogpt"].save_to(tmp_path / "theirs")
    torch.save({f"net.{name}": x for name, x in model.state_dict().items()}, tmp_path / "w.pt")
    with pytest.raises(ConversionError, match=r"begin with 'net\.'.*those of nanogpt"):
        import_checkpoint(tmp_path / "w.pt", tmp_path / "ours")


# Damage


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json"])
@pytest.mark.parametrize(
    ("content", "words"),
    [(POINTER, ("git-lfs pointer", "git lfs pull")), (PAGE, ("HTML page", "/resolve/"))],
)
def test_what_a_download_left_is_named(name, content, words, tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    if name == "pytorch_model.bin":
        (tmp_path / "theirs/model.safetensors").unlink()
    (tmp_path / "theirs" / name).write_text(content)
    assert_refused(tmp_path, name, *words)
    with pytest.raises(ConversionError) as caught:
        import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert "fetch it again" not in str(caught.value)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_only_a_damaged_file_is_fetched_again(name, tmp_path):
    path = tmp_path / name
    state = {"fc.weight": torch.ones(30, 30)}
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    whole = path.read_bytes()
    for content, words, again in (
        (whole[:-300], "is truncated", True),
        (b"import torch\n" * 40, "is a text file", False),
        (bytes(range(256)) * 4, "give the file that holds the weights", False),
    ):
        path.write_bytes(content)
        with pytest.raises(ConversionError, match=words) as caught:
            import_checkpoint(path, tmp_path / "ours")
        assert ("fetch it again" in str(caught.value)) == again


def test_a_file_of_an_old_torch_is_saved_again(tmp_path):
    state = {"fc.weight": torch.ones(30, 30)}
    torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(tmp_path / "w.pt")
    with pytest.raises(ConversionError, match=r"torch\.save before 1\.6"):
        import_checkpoint(tmp_path / "w.pt", tmp_path / "ours")


def test_a_configuration_that_is_mistyped_is_corrected(tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    (tmp_path / "theirs/config.json").write_text('{"model_type": "llama",}')
    assert_refused(tmp_path, "config.json is not valid JSON", "correct it")


# Names of formats


@pytest.mark.parametrize(
    ("name", "first"),
    [("lama", "llama"), ("qwen_2", "qwen2"), ("roberta_prelayernorm", "roberta"), ("Bart", "bart")],
)
def test_a_wrong_name_has_its_nearest_formats(name, first):
    found = nearest(name, FORMATS)
    assert first in found
    assert len(found) <= 4


def test_words_of_one_family_are_near():
    assert {"qwen2", "qwen3"} <= set(nearest("qwen9_super", FORMATS))
    assert nearest("perhaps_tomorrow", FORMATS) == []


def test_a_wrong_model_type_has_its_nearest_formats_and_not_all(tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", model_type="llama_pro")
    assert_refused(tmp_path, "'llama_pro'", "did you mean llama", "`tformer convert formats`")
    with pytest.raises(ConversionError) as caught:
        import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("command", "near"),
    [
        (["import", "a", "b", "--format", "lama"], "llama"),
        (["export", "a", "b", "--to", "lama"], "llama"),
        (["export", "a", "b", "--to", "gguff"], "gguf"),
    ],
)
def test_a_mistyped_format_of_the_command_has_its_nearest(command, near, capsys):
    with pytest.raises(SystemExit):
        main(command)
    told = capsys.readouterr().err.splitlines()[-1]
    assert near in told
    assert "`tformer convert formats`" in told
    assert len(told) < 300


def test_a_mistyped_format_in_a_program_has_its_nearest(tmp_path):
    with pytest.raises(ConversionError, match=r"no format 'onx': .* did you mean onnx"):
        export_checkpoint(tmp_path, tmp_path / "out", to="onx")
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    with pytest.raises(ConversionError, match=r"no format 'lama': .* did you mean llama"):
        import_checkpoint(tmp_path / "theirs", tmp_path / "ours", format="lama")


def test_a_configuration_without_a_model_type_is_answered(tmp_path):
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs/config.json").read_text())
    del config["model_type"]
    (tmp_path / "theirs/config.json").write_text(json.dumps(config))
    assert_refused(tmp_path, "names no model_type", "`tformer convert formats`")


def test_a_gguf_file_says_which_package_reads_it(tmp_path, monkeypatch):
    """tests/runtimes/test_gguf_import.py has that package."""
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "theirs").mkdir()
    path = tmp_path / "theirs/model.bin"
    path.write_bytes(b"GGUF\3\0\0\0" * 40)
    for name in ("model.bin", "smol.gguf"):
        path = path.rename(path.with_name(name))
        with pytest.raises(ConversionError, match=rf"{name} is a GGUF file.*pip install gguf"):
            import_checkpoint(path, tmp_path / "ours")
    assert_refused(tmp_path, "smol.gguf is a GGUF file", "pip install gguf")
    for ask in (lambda: verify(path, path), lambda: export_checkpoint(path, "new", to="llama")):
        with pytest.raises(ConversionError, match=r"run `tformer convert import .*smol\.gguf NEW`"):
            ask()


def test_the_list_of_formats_says_how_gguf_files_are_read(capsys):
    assert main(["formats", "gguf"]) == 1
    assert "`tformer convert import FILE.gguf NEW` reads a file" in capsys.readouterr().err
