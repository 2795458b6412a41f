"""What loading reaches is known over all entries of a folder: inner folders that are models of
their own, classes and models that JSON files name, and files that hold pickles or native code."""

import json

import pytest

from hf_tformer.checking import check
from hf_tformer.checking.findings import dangers
from support.broken_models import CONFIG, write_foreign

pytestmark = pytest.mark.usefixtures("read_here")

EVIL = "import os\nos.system('true')\n\n\nclass Custom:\n    pass\n"
DECOY = "class Custom:\n    pass\n"


@pytest.fixture
def folder(tmp_path):
    return write_foreign(tmp_path / "folder")


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def find(findings, name, verdict="fail"):
    return "\n".join(f.detail for f in findings if (f.name, f.verdict) == (name, verdict))


INNER = {
    "a model in an inner folder": {
        "0_Transformer/config.json": {"auto_map": {"AutoModel": "custom.Custom"}},
        "0_Transformer/custom.py": EVIL,
    },
    "the same beside a decoy": {
        "0_Transformer/config.json": {"auto_map": {"AutoModel": "custom.Custom"}},
        "0_Transformer/custom.py": EVIL,
        "custom.py": DECOY,
    },
    "a decoy in the inner folder": {
        "0_Transformer/config.json": {"auto_map": {"AutoModel": "custom.Custom"}},
        "0_Transformer/custom.py": DECOY,
        "custom.py": EVIL,
    },
    "what the code of an inner folder imports": {
        "0_Transformer/config.json": {"auto_map": {"AutoModel": "custom.Custom"}},
        "0_Transformer/custom.py": "from .other import Custom\n",
        "0_Transformer/other.py": EVIL,
        "other.py": DECOY,
    },
    "a module of a sentence model": {
        "modules.json": [{"name": "0", "path": "0_Custom", "type": "custom.Custom"}],
        "custom.py": EVIL,
    },
    "a module by a path with dots": {
        "modules.json": [{"name": "0", "path": "", "type": "inner.custom.Custom"}],
        "inner/custom.py": EVIL,
        "custom.py": DECOY,
    },
    "a module of a router": {
        "1_Router/router_config.json": {"types": {"a": "custom.Custom"}, "structure": {}},
        "custom.py": EVIL,
    },
    "custom_generate of an inner folder": {
        "0_Transformer/config.json": {"model_type": "bert"},
        "0_Transformer/custom_generate/generate.py": EVIL,
    },
}


@pytest.mark.parametrize("case", INNER)
def test_code_of_inner_folders_is_reached(case, folder):
    for name, content in INNER[case].items():
        write(folder, name, content)
    findings = check(folder, run=False)
    assert "subprocess" in find(findings, "safety")
    assert "does not reach" not in find(findings, "safety", "warn")
    assert dangers(findings)


def test_a_class_beside_its_own_configuration_is_not_missing(folder):
    write(folder, "0_Transformer/config.json", {"auto_map": {"AutoModel": "custom.Custom"}})
    write(folder, "0_Transformer/custom.py", DECOY)
    assert "custom.py" not in find(check(folder, run=False), "auto_map")


IMPORTED = {
    ("1_Dense/config.json", "activation_function"): "os.abort",
    ("config.json", "activation_fn"): "torch.hub.load",
    ("0_Words/wordembedding_config.json", "tokenizer_class"): "antigravity.Tokenizer",
    ("adapter_config.json", "megatron_core"): "antigravity",
    ("adapter_config.json", "megatron_config"): {"num_layers": 1},
    ("inner/adapter_config.json", "base_model_name_or_path"): "nobody/nothing",
}


@pytest.mark.parametrize(("file", "key"), IMPORTED)
def test_what_a_configuration_has_imported_is_named(file, key, folder):
    write(folder, file, {**(CONFIG if file == "config.json" else {}), key: IMPORTED[file, key]})
    findings = check(folder, run=False)
    assert f"{file} has" in find(findings, "foreign code")
    assert dangers(findings)


HONEST = {
    "1_Dense/config.json": {"activation_function": "torch.nn.modules.activation.Tanh"},
    "2_Dense/config.json": {"activation_function": "gelu_new", "backbone": None},
    "0_Words/wordembedding_config.json": {
        "tokenizer_class": "sentence_transformers.models.tokenizer.WhitespaceTokenizer"
    },
    "modules.json": [
        {"name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ],
    "adapter_config.json": {"megatron_core": "megatron.core", "megatron_config": None},
    "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"},
}


@pytest.mark.parametrize("file", HONEST)
def test_what_honest_configurations_say_is_left_alone(file, folder):
    write(folder, file, HONEST[file])
    assert not find(check(folder, run=False), "foreign code")


def test_no_object_of_a_module_of_sentence_transformers_passes_for_a_class(folder):
    kind = "sentence_transformers.base.model.pickle"
    write(folder, "modules.json", [{"name": "0", "path": "", "type": kind}])
    assert kind in find(check(folder, run=False), "foreign code")


@pytest.mark.parametrize("key", ["backbone", "audio_tokenizer_name_or_path"])
def test_another_repository_that_is_loaded_is_named(key, folder):
    write(folder, "processor_config.json", {"audio_tokenizer": {key: "nobody/nothing"}})
    assert "'nobody/nothing' loaded as" in find(check(folder, run=False), "foreign code", "warn")


PICKLED = ("inner/weights.bin", "a.npz", "a.npy", "model.pth.tar", "a.nemo", "a.mar", "A.PKL")


@pytest.mark.parametrize("name", PICKLED)
def test_a_pickle_of_any_name_and_depth_is_named(name, folder):
    write(folder, name, "")
    assert name in find(check(folder, run=False), "weights", "warn")


@pytest.mark.parametrize("name", ["lib.so.1", "inner/lib.so.1.2", "a.SO", "a.pyd"])
def test_native_code_of_any_version_is_named(name, folder):
    write(folder, name, "")
    assert name in find(check(folder, run=False), "files", "warn")
