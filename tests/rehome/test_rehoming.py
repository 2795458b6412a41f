"""`tformer rehome`: a folder with code of others opens today, and what it answers is proven."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from conversion import ConversionError, rehome
from conversion.rehoming import repairs
from conversion.rehoming.command import main
from hf_tformer.checking import fresh_process
from support.fallen_walls import move_to
from support.foreign_code import foreign_folder

WEIGHTS = "model.safetensors"
pytestmark = pytest.mark.usefixtures("warm_python")


def moved(kind, tmp_path, **more):
    return rehome(foreign_folder(kind, tmp_path / "old"), tmp_path / "new", **more)


def test_code_that_computes_what_llama_does_becomes_llama_without_code(tmp_path):
    done = moved("internlm2", tmp_path)
    assert done.became == "LlamaForCausalLM of transformers"
    assert done.is_proven
    assert "greedy text equal" in done.proof
    assert not list((tmp_path / "new").glob("*.py"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    assert type(model).__name__ == "LlamaForCausalLM"
    assert "auto_map" not in json.loads((tmp_path / "new" / "config.json").read_text())


def test_code_that_one_of_our_families_expresses_becomes_ours(tmp_path):
    done = moved("baichuan", tmp_path)
    assert done.became == "TformerDecoderForCausalLM of hf_tformer"
    assert done.is_proven
    config = AutoConfig.from_pretrained(tmp_path / "new")
    assert config.score_bias == "alibi"


def test_code_of_no_known_kind_is_carried_and_keeps_its_buffers(tmp_path):
    done = moved("own_kind", tmp_path)
    assert done.became == "its own code"
    assert done.is_proven
    assert done.repairs == [
        "from_pretrained makes the model in memory, and keeps the buffers computed there"
    ]
    assert "+    def get_init_context" in done.diff
    code = (
        "import sys; from transformers import AutoModelForCausalLM; "
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True); "
        "print([round(x, 4) for x in model.model.layers[1].self_attn.slopes.flatten().tolist()])"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code, tmp_path / "new"], capture_output=True, text=True
    )
    assert run.stdout.strip() == "[0.25, 0.0625, 0.0156, 0.0039, 0.5, 0.125]"


def edit(folder, name, *pairs):
    path = folder / name
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_a_class_whose_answers_differ_is_not_taken(tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    edit(folder, "modeling_internlm2.py", ("is_causal=True", "is_causal=True, scale=0.3"))
    done = rehome(folder, tmp_path / "new")
    assert done.became == "its own code"
    (note,) = done.notes
    assert note.startswith("not taken: LlamaForCausalLM, the answers to 7 tokens differ by ")
    assert done.is_proven


AGED = (
    "import no_such_package_at_all\n"
    "from transformers.utils import is_torch_fx_available\n"
    "from configuration_own_kind import OwnConfig\n"
)
MENDED = [
    "modules of the folder are imported from there",
    "no_such_package_at_all is not installed: its import may fail",
    "transformers no longer has is_torch_fx_available there",
]


@pytest.fixture
def aged(tmp_path):
    return foreign_folder("own_kind", tmp_path / "old", imports=AGED)


def test_code_that_no_longer_runs_is_repaired_in_sight_and_called_not_proven(aged, capsys):
    new = aged.parent / "new"
    assert main([str(aged), str(new)]) == 1
    out = capsys.readouterr().out
    assert "not proven: the old code needs repairs in transformers " in out
    for sentence in MENDED:
        assert f"repaired: {sentence}\n" in out
    assert "-from configuration_own_kind import OwnConfig\n" in out
    assert "+from .configuration_own_kind import OwnConfig\n" in out
    card = (new / "README.md").read_text()
    assert "**Not proven**" in card
    assert "```diff\n" in card
    assert (aged / "modeling_own_kind.py").read_text().startswith("\nimport math")  # as it was


def test_another_interpreter_can_be_the_witness(aged):
    new = aged.parent / "new"
    done = rehome(aged, new, python=sys.executable)
    assert done.is_proven
    assert f"repaired ({'; '.join(MENDED)})" in done.proof


def test_code_that_looks_dangerous_is_not_run_and_the_class_is_not_proven(tmp_path, capsys):
    folder = foreign_folder("internlm2", tmp_path / "old")
    line = "import os\nos.system('touch ' + os.environ['HOME'] + '/ran')\n"
    path = folder / "modeling_internlm2.py"
    path.write_text(line + path.read_text())
    assert main([str(folder), str(tmp_path / "new")]) == 1
    out = capsys.readouterr().out
    assert "opens as LlamaForCausalLM of transformers" in out
    assert "not proven: no code was run, because reading it found " in out
    assert "--run-anyway" in out
    assert "**Not proven**: no code was run" in (tmp_path / "new" / "README.md").read_text()


def test_dangerous_code_of_no_known_kind_is_refused_and_nothing_is_written(tmp_path, capsys):
    folder = foreign_folder("own_kind", tmp_path / "old")
    path = folder / "modeling_own_kind.py"
    path.write_text("import os\nos.system('true')\n" + path.read_text())
    assert main([str(folder), str(tmp_path / "new")]) == 2
    assert "no code was run, because reading it found" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("machine", ["macOS", "a kernel without Landlock"])
def test_without_walls_no_code_runs_and_what_needs_none_is_written(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(fresh_process, "LARGE", 20_000)  # bytes: the weights are linked
    words = move_to(machine, monkeypatch, tmp_path)
    done = moved("internlm2", tmp_path)
    assert done.became == "LlamaForCausalLM of transformers"
    assert words in done.not_proven
    with pytest.raises(ConversionError, match="walls are missing here"):
        rehome(foreign_folder("own_kind", tmp_path / "other"), tmp_path / "newer")
    assert not (tmp_path / "newer").exists()
    done = rehome(tmp_path / "other", tmp_path / "newer", without_walls=True)
    assert done.is_proven


def no_code(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config))


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def other_heads(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForVideo": "modeling_internlm2.A"}
    (folder / "config.json").write_text(json.dumps(config))


def broken_code(folder):
    (folder / "modeling_internlm2.py").write_text("class InternLM2ForCausalLM:\n    pass\n")
    edit(folder, "config.json", ('"internlm2"', '"of_no_kind"'))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (no_code, "names no code (auto_map): from_pretrained opens such a folder as it is"),
        (no_weights, "holds no weights: one of "),
        (other_heads, "auto_map of .* names AutoModelForVideo: only AutoModelForCausalLM, "),
        (broken_code, "was not moved: its own code: it does not open: "),
    ],
)
def test_what_cannot_be_moved_is_refused_and_nothing_is_written(damage, sentence, tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    damage(folder)
    pattern = sentence if ".*" in sentence else sentence.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ConversionError, match=pattern):
        rehome(folder, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_wrong_places_are_named(tmp_path):
    with pytest.raises(ConversionError, match="is no folder: give one that holds config"):
        rehome(tmp_path / "nowhere", tmp_path / "new")
    folder = foreign_folder("internlm2", tmp_path / "old")
    for python in (tmp_path / "python", "/bin/true"):
        with pytest.raises(ConversionError, match="is no Python interpreter: give one"):
            rehome(folder, tmp_path / "new", python=python)
    with pytest.raises(ConversionError, match="exists: choose another name"):
        rehome(folder, tmp_path)


def test_tensors_without_a_place_and_fields_without_one_are_named(tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.extra": torch.ones(2)}, folder / "model.safetensors")
    with pytest.raises(ConversionError, match=r"llama: it has no place for model\.extra; its own"):
        rehome(folder, tmp_path / "new")
    save_file(tensors, folder / "model.safetensors")
    edit(folder, "config.json", ('"eos_token_id"', '"bias": true, "eos_token_id"'))
    done = rehome(folder, tmp_path / "new")
    assert done.became == "its own code"
    assert done.notes == [
        "not taken: llama: bias is True, which llama cannot express: only False has a place there"
    ]


def test_numbers_that_are_none_and_fields_that_do_not_fit_are_named(tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "output.weight": tensors["output.weight"] * torch.nan}, folder / WEIGHTS)
    with pytest.raises(ConversionError, match=r"lm_head\.weight holds NaN"):
        rehome(folder, tmp_path / "new")
    save_file(tensors, folder / WEIGHTS)
    edit(folder, "config.json", ('"eos_token_id"', '"num_attention_heads": 3, "eos_token_id"'))
    with pytest.raises(ConversionError, match="the tensors have other sizes"):
        rehome(folder, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_field_that_a_renaming_needs_is_asked_for(tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    edit(folder, "config.json", ('"internlm2"', '"minicpm"'))
    done = rehome(folder, tmp_path / "new")
    assert done.notes == ["not taken: granite: config.json lacks 'scale_depth'"]
    assert done.became == "its own code"


def test_a_tokenizer_with_code_of_its_own_is_carried_and_named(tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    (folder / "tokenization_x.py").write_text("class XTokenizer:\n    pass\n")
    (folder / "tokenizer.model").write_bytes(b"vocabulary")
    tokenizer = {"auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    done = rehome(folder, tmp_path / "new")
    assert done.became == "LlamaForCausalLM of transformers"
    assert any("tokenization_x.py" in note and "as it is" in note for note in done.notes)
    assert (tmp_path / "new" / "tokenization_x.py").is_file()
    assert (tmp_path / "new" / "tokenizer.model").read_bytes() == b"vocabulary"


EDITS = [
    (
        "AttributeError: 'XConfig' object has no attribute 'pad_token_id'",
        "class XConfig(PretrainedConfig):\n    a = 1\n",
        "class XConfig(PretrainedConfig):\n    pad_token_id = None\n    a = 1\n",
    ),
    (
        "AttributeError: 'XConfig' object has no attribute 'max_length'",
        "n = config.max_length\n",
        "n = 20\n",
    ),
    (
        "TypeError: 'DynamicCache' object is not subscriptable",
        "class XPreTrainedModel(PreTrainedModel):\n"
        '    def prepare(self, **kwargs):\n        p = kwargs.get("position_ids", None)\n',
        "class XPreTrainedModel(PreTrainedModel):\n"
        "    _supports_default_dynamic_cache = classmethod(lambda cls: False)\n"
        "    def prepare(self, **kwargs):\n        p = None\n",
    ),
    (
        "AttributeError: 'X' object has no attribute 'all_tied_weights_keys'",
        "class X(Y):\n    def __init__(self):\n        super().__init__()\n        self.a = f(\n"
        "            1\n        )\n",
        "class X(Y):\n    def __init__(self):\n        super().__init__()\n        self.a = f(\n"
        "            1\n        )\n        self.post_init()\n",
    ),
    (
        "AttributeError: 'list' object has no attribute 'keys'",
        'class X:\n    base_model_prefix = "model"\n    _tied_weights_keys = ["lm_head.weight"]\n'
        "    def f(self):\n        self.wte = nn.Embedding(1, 2)\n",
        'class X:\n    base_model_prefix = "model"\n'
        '    _tied_weights_keys = {"lm_head.weight": "model.wte.weight"}\n'
        "    def f(self):\n        self.wte = nn.Embedding(1, 2)\n",
    ),
    (
        "AttributeError: 'X' object has no attribute 'generate'",
        "class X(Y):\n    pass\n",
        "from transformers import GenerationMixin\n\n\nclass X(Y, GenerationMixin):\n    pass\n",
    ),
    (
        "ImportError: cannot import name 'is_torch_fx_available' from 'transformers.utils' (/x)",
        "if 1:\n    from transformers.utils import (\n        logging,\n"
        "        is_torch_fx_available,\n    )\nx = 1\n",
        "if 1:\n    from transformers.utils import logging\n    def is_torch_fx_available():\n"
        "        return False\nx = 1\n",
    ),
    (
        "ImportError: This modeling file requires the following packages that were not found in "
        "your environment: a, b. Run `pip install a b`",
        "import a.c as d\nif 1:\n    from b import (\n        e,\n    )\nimport os\n",
        "try:\n    import a.c as d\nexcept ImportError:\n    pass\nif 1:\n    try:\n"
        "        from b import (\n            e,\n        )\n    except ImportError:\n"
        "        pass\nimport os\n",
    ),
]


@pytest.mark.parametrize(("error", "before", "after"), EDITS)
def test_a_repair_changes_what_its_error_names_and_the_rest_stays(error, before, after):
    sources = {"x.py": before, "other.py": "y = 2\n"}
    done = repairs.repair(sources, error)
    assert done.sources == {"x.py": after, "other.py": "y = 2\n"}
    compile(done.sources["x.py"], "x.py", "exec")
    assert done.sentence
    assert repairs.repair(done.sources, error) is None


def test_an_error_without_a_repair_is_not_guessed_at():
    assert repairs.repair({"x.py": "y = z\n"}, "NameError: name 'z' is not defined") is None


def test_weights_of_two_bytes_stay_as_they_are(tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    tensors = load_file(folder / WEIGHTS)
    save_file({name: t.bfloat16() for name, t in tensors.items()}, folder / WEIGHTS)
    edit(folder, "config.json", ('"eos_token_id"', '"torch_dtype": "bfloat16", "eos_token_id"'))
    assert rehome(folder, tmp_path / "new").is_proven
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "new")
    assert model.dtype == torch.bfloat16
    stored = load_file(tmp_path / "new" / WEIGHTS).values()
    assert {tensor.dtype for tensor in stored} == {torch.bfloat16}


def test_weights_in_pickles_are_read_without_running_them_and_become_safetensors(tmp_path):
    folder = foreign_folder("internlm2", tmp_path / "old")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    done = rehome(folder, tmp_path / "new")
    assert done.is_proven
    assert (tmp_path / "new" / "model.safetensors").is_file()
    assert not (tmp_path / "new" / "pytorch_model.bin").exists()
