"""`tformer check` names the fault of every folder that is broken on purpose, and finds
none in a good one."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import hf_tformer
from hf_tformer.checking import CheckError, check, report
from hf_tformer.checking.command import main
from support import broken_models
from support.broken_models import (
    BREAKAGES,
    CODE,
    FILE,
    HARMLESS,
    edit_json,
    edit_weights,
    prepend,
    write_foreign,
)
from support.families import SEQ2SEQ, WRITERS

pytestmark = pytest.mark.usefixtures("warm_python", "read_here")


def faults(findings):
    """Without the walls, which depend on the kernel: test_walls.py is about them."""
    return [f for f in findings if f.verdict in ("fail", "warn") and f.name != "walls"]


def find(findings, name, verdict="fail"):
    """The details of all findings of one name and verdict, as one text."""
    return "\n".join(f.detail for f in findings if f.name == name and f.verdict == verdict)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A sound folder of someone else's, for tests that only read it or copy it."""
    return write_foreign(tmp_path_factory.mktemp("foreign") / "sound")


@pytest.fixture
def copied(foreign, tmp_path):
    return Path(shutil.copytree(foreign, tmp_path / "copied"))


def write_tokenizer(folder, pad="<pad>"):
    """Token i is called i, but for the padding and the end."""
    names = [pad, "1", "</s>", *map(str, range(3, 61))]
    tokens = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="1"))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token=pad, eos_token="</s>")
    fast.save_pretrained(folder)


def test_a_good_folder_of_each_family_passes_everything(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    findings = check(tmp_path)
    assert not faults(findings)
    assert "equal to the installed hf_tformer" in find(findings, "code", "ok")
    skipped = {finding.name for finding in findings if finding.verdict == "skip"}
    assert skipped == (set() if family in WRITERS else {"cache", "causality", "generation"})


def test_a_good_folder_of_someone_else_passes_everything(foreign):
    assert not faults(check(foreign))


def test_a_good_encoder_passes_and_is_not_asked_for_a_cache(tmp_path):
    """It is the same model without the causal mask, answering AutoModel alone."""
    auto_map = {
        name: broken_models.CONFIG["auto_map"][name] for name in ("AutoConfig", "AutoModel")
    }
    folder = write_foreign(tmp_path / "encoder", causal=False, architectures=["ForeignModel"])
    edit_json(folder / "config.json", auto_map=auto_map)
    findings = check(folder)
    assert not faults(findings)
    assert "does not generate" in find(findings, "cache", "skip")


def test_an_encoder_without_a_head_passes_though_its_other_classes_have_new_heads(tmp_path):
    """Its norm beside the embeddings and the heads' projections both have a bias."""
    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 97}
    norms = {"norm_type": "layernorm", "embedding_norm": True}
    config = hf_tformer.TformerEncoderConfig(**sizes, num_attention_heads=3, **norms)
    hf_tformer.TformerEncoderModel(config).save_pretrained(tmp_path)
    findings = check(tmp_path)
    assert not faults(findings)
    assert "new: " in find(findings, "loads: AutoModelForMaskedLM", "ok")


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_what_shows_only_when_it_runs_is_named(breakage, tmp_path):
    old, new, name, detail = BREAKAGES[breakage]
    folder = write_foreign(tmp_path / "broken", old, new)
    assert detail in find(check(folder, run_anyway=True), name)


def test_a_hanging_model_fails_where_it_hangs(tmp_path):
    hang = "import torch\nwhile True: pass\n"
    folder = write_foreign(tmp_path / "broken", "import torch\n", hang)
    findings = check(folder, timeout=4)
    assert "no answer within the time allowed" in "\n".join(f.detail for f in findings)


def test_weights_that_do_not_fit_the_code_are_named(copied):
    def rename(tensors):
        tensors["model.layers.0.gone"] = tensors.pop("model.layers.0.out.bias")

    edit_weights(copied / "model.safetensors", rename)
    detail = find(check(copied), "loading report")
    assert "missing keys: model.layers.0.out.bias" in detail
    assert "unexpected keys: model.layers.0.gone" in detail


def test_quantised_weights_are_opened_and_nothing_more_is_asked_of_them(copied):
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    edit_json(copied / "config.json", quantization_config=settings)
    findings = check(copied)
    for name in ("parameters", "ties", "padded rows", "second save"):
        assert "the weights are quantised by bitsandbytes" in find(findings, name, "skip")
    assert all(
        f.name in ("loads: AutoModelForCausalLM", "loading report") for f in faults(findings)
    )


def test_a_class_whose_file_is_not_saved_again_is_named(copied):
    other = "from .modeling_foreign import ForeignModel\n\n\nclass Other(ForeignModel):\n    pass\n"
    (copied / "modeling_other.py").write_text(other)
    auto_map = {**broken_models.CONFIG["auto_map"], "AutoModel": "modeling_other.Other"}
    edit_json(copied / "config.json", auto_map=auto_map)
    findings = check(copied)
    assert "modeling_other.py, which AutoModel needs" in find(findings, "second save")


def test_a_base_model_that_starts_at_random_is_named(tmp_path):
    old, new = 'base_model_prefix = "model"', 'base_model_prefix = "transformer"'
    findings = check(write_foreign(tmp_path / "broken", old, new))
    assert "not loaded: embed_tokens.weight" in find(findings, "loads: AutoModel")


def test_an_encoder_decoder_that_reads_its_padded_source_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "compare_answers", lambda *_: ("warn", ""))  # takes ten seconds
    SEQ2SEQ.build().save_pretrained(tmp_path)
    stacks = tmp_path / "stacks_seq2seq.py"
    text = stacks.read_text()
    assert text.count("attention_mask=encoder_attention_mask") == 1
    stacks.write_text(text.replace("=encoder_attention_mask", "=None"))
    findings = check(tmp_path)
    assert "padded on the right are not answered as they are alone" in find(findings, "padded rows")


@pytest.mark.parametrize("code", CODE)
def test_what_the_code_says_is_named_with_its_line(code, copied):
    name, verdict, detail = CODE[code]
    prepend(copied / FILE, code)
    assert detail in find(check(copied, run=False), name, verdict)


def test_harmless_code_is_left_alone(copied):
    prepend(copied / FILE, HARMLESS)
    assert not faults(check(copied, run=False))


MAPS = {
    "gone.ForeignModel": "gone.py is missing",
    "modeling_foreign.Gone": "modeling_foreign.py has no class Gone",
    "ForeignModel": "the form module.Class",
}


@pytest.mark.parametrize("reference", MAPS)
def test_a_map_that_leads_nowhere_is_named(reference, copied):
    auto_map = {**broken_models.CONFIG["auto_map"], "AutoModel": reference}
    edit_json(copied / "config.json", auto_map=auto_map)
    assert MAPS[reference] in find(check(copied, run=False), "auto_map")


def test_a_map_that_leads_to_another_repository_is_named(copied):
    reference = "user/repo--modeling_foreign.ForeignModel"
    edit_json(copied / "config.json", auto_map={"AutoModel": reference})
    assert "another repository" in find(check(copied, run=False), "foreign code")


def test_code_that_looks_dangerous_runs_only_if_someone_insists(copied):
    marker = copied.parent / "marker"
    prepend(copied / FILE, f"import os\nos.mkdir({str(marker)!r})\n")
    findings = check(copied)
    assert "not run, because of safety: --run-anyway" in find(findings, "running", "skip")
    assert not marker.exists()
    assert command(copied, "--json") == 3
    assert not marker.exists()
    assert not find(check(copied, run_anyway=True), "running", "skip")


@pytest.mark.parametrize(("left_out", "verdict"), [("AutoConfig", "fail"), ("AutoModel", "warn")])
def test_a_map_that_leaves_out_a_class_is_named(left_out, verdict, copied):
    auto_map = {n: r for n, r in broken_models.CONFIG["auto_map"].items() if n != left_out}
    edit_json(copied / "config.json", auto_map=auto_map)
    findings = check(copied, run=False)
    assert f"{left_out} is not named" in find(findings, "auto_map", verdict)


def test_a_config_without_a_map_is_named(copied):
    edit_json(copied / "config.json", auto_map=None)
    assert "config.json has no auto_map" in find(check(copied, run=False), "auto_map")


def test_a_missing_file_of_code_is_named(copied):
    (copied / FILE).unlink()
    assert f"{FILE} is missing" in find(check(copied, run=False), "auto_map")


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation_internal"])
@pytest.mark.parametrize("value", ["someone/kernel", {"decoder": "kernel:function"}])
def test_a_config_that_chooses_code_to_download_is_named(key, value, copied):
    edit_json(copied / "config.json", **{key: value})
    assert "downloads and runs code" in find(check(copied, run=False), "attention kernel")


def test_pickled_weights_are_a_fault_alone_and_a_warning_beside_safetensors(copied):
    torch.save({}, copied / "pytorch_model.bin")
    detail = find(check(copied, run=False), "weights", "warn")
    assert "pytorch_model.bin" in detail
    (copied / "model.safetensors").unlink()
    assert "pytorch_model.bin" in find(check(copied, run=False), "weights")
    (copied / "pytorch_model.bin").unlink()
    assert "there are no weights" in find(check(copied, run=False), "weights")


def test_damaged_and_missing_weights_are_named(copied):
    (copied / "model.safetensors").write_bytes(b"not tensors")
    edit_json(copied / "model.safetensors.index.json", weight_map={"a": "model-2.safetensors"})
    detail = find(check(copied, run=False), "weights")
    assert "model.safetensors cannot be read" in detail
    assert "names what is missing: model-2.safetensors: add it" in detail


def test_a_tokenizer_that_disagrees_or_needs_trust_is_named(copied):
    write_tokenizer(copied)
    assert not faults(check(copied, run=False))
    edit_json(copied / "config.json", eos_token_id=[5, 6])
    assert "'</s>' is 2 in tokenizer.json" in find(check(copied, run=False), "tokenizer")
    auto_map = {"AutoTokenizer": ["modeling_foreign.ForeignModel", None]}
    edit_json(copied / "tokenizer_config.json", auto_map=auto_map)
    assert "needs trust_remote_code" in find(check(copied, run=False), "tokenizer", "warn")


def test_code_that_is_not_the_installed_package_s_is_named_file_by_file(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    prepend(tmp_path / "attention.py", "# changed\n")
    (tmp_path / "layers.py").unlink()
    (tmp_path / "more.py").touch()
    detail = find(check(tmp_path, run=False), "code", "warn")
    assert "differs: attention.py (" in detail
    assert "missing: layers.py" in detail
    assert "extra: more.py" in detail


def refusal(kind, status):
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return kind("refused", response=response)


DOWNLOADS = {
    "is gated": refusal(errors.GatedRepoError, 403),
    "nor a repository that you may see": refusal(errors.RepositoryNotFoundError, 404),
    "has no revision v9": refusal(errors.RevisionNotFoundError, 404),
    "check the connection": errors.LocalEntryNotFoundError("no connection"),
}


@pytest.mark.parametrize("sentence", DOWNLOADS)
def test_a_repository_that_cannot_be_had_is_one_sentence(sentence, monkeypatch, tmp_path, capsys):
    def refuse(*args, **kwargs):
        raise DOWNLOADS[sentence]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(CheckError, match=sentence):
        check("user/name", revision="v9")
    assert command("user/name", "--revision", "v9", "--no-run") == 2
    assert sentence in capsys.readouterr().err


def test_a_repository_is_downloaded_at_the_revision_and_checked(foreign, monkeypatch):
    def download(repo_id, revision, **kwargs):
        assert (repo_id, revision) == ("user/name", "v1")
        return str(foreign)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: [])
    assert not faults(check("user/name", revision="v1", run=False))


def test_what_is_no_model_folder_is_one_sentence(tmp_path, foreign):
    with pytest.raises(CheckError, match="there is no folder"):
        check(tmp_path / "gone", run=False)
    with pytest.raises(CheckError, match=r"has no config\.json"):
        check(tmp_path, run=False)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckError, match="is not JSON"):
        check(tmp_path, run=False)
    with pytest.raises(CheckError, match="is a file"):
        check(foreign / "config.json", run=False)
    with pytest.raises(CheckError, match="can only be chosen of a repository"):
        check(foreign, revision="main", run=False)
    with pytest.raises(CheckError, match="nor a repository's name"):
        check("no name", run=False)


def command(*arguments):
    return main([str(argument) for argument in arguments])


def test_the_command_prints_a_line_each_and_a_summary(foreign, capsys):
    assert command(foreign, "--no-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("ok    auto_map")
    assert "  read  " in lines[1]
    assert lines[-1].startswith("11 ok, 0 warnings, 0 failed, 1 skipped; ")
    assert lines[-1].endswith(" lines rest on reading, no code of the folder was run")


def test_what_reading_cannot_resolve_is_not_called_read_and_leaves_the_folder_not_judged(
    copied, capsys
):
    prepend(copied / FILE, "from tqdm import tqdm\ntqdm([]).fp\n")
    assert command(copied, "--no-run") == 2
    output = capsys.readouterr().out
    assert "warn  safety            not understood    not understood: " in output
    assert "1 not understood, for a person to read" in output


def test_the_command_fails_and_speaks_json(copied, capsys):
    (copied / FILE).unlink()
    assert command(copied, "--no-run", "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert {"name", "verdict", "detail", "rests_on", "places"} == set(printed[0])
    assert "fail" in {finding["verdict"] for finding in printed}
