"""What `check` says to the author of a folder: the cause in their own code, once, and the remedy.

Each mistake was made by somebody who wrote such folders without knowing this tool.
"""

from importlib.metadata import requires

import pytest
import transformers
from packaging.requirements import Requirement
from packaging.version import Version
from transformers.generation.utils import ALL_CACHE_NAMES

from hf_tformer.checking import check
from hf_tformer.checking.command import report_lines
from hf_tformer.checking.source_code import PROMISED
from support.broken_models import (
    CONFIG,
    FILE,
    FOREIGN,
    edit_json,
    edit_weights,
    prepend,
    write_foreign,
)

pytestmark = pytest.mark.usefixtures("warm_python", "read_here")

OF_ANSWERS = ("forward", "padded rows", "causality", "cache", "generation", "options", "training")
LOADS = "loads: AutoModelForCausalLM"
HEAD = "        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)\n"

# mistake → (piece of the sound code, what it is replaced by, part of what is said)
MISTAKES = {
    "post_init is forgotten": (
        HEAD + "        self.post_init()\n",
        HEAD,
        "end __init__ of the model with self.post_init()",
    ),
    "the configuration forgets its base class": (
        "        super().__init__(**kwargs)\n",
        "        super().__init__()\n",
        "end __init__ of the configuration with super().__init__(**kwargs)",
    ),
    "a device in __init__": (
        HEAD,
        HEAD + '        self.to("cpu", torch.bfloat16)\n',
        f"at {FILE}:",
    ),
    "a value in __init__": (
        HEAD,
        HEAD + "        self.largest = self.lm_head.weight.max().numpy()\n",
        "ask no values in __init__",
    ),
}


def said(findings, name, verdict="fail"):
    return [found.detail for found in findings if (found.name, found.verdict) == (name, verdict)]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_of_loading_names_its_place_or_its_remedy(mistake, tmp_path):
    old, new, expected = MISTAKES[mistake]
    (detail,) = said(check(write_foreign(tmp_path / "broken", old, new), run_anyway=True), LOADS)
    assert expected in detail


def test_garbage_in_a_buffer_is_one_fault_and_not_six(tmp_path):
    folder = write_foreign(
        tmp_path / "broken", "module.inv_freq.data = module.frequencies()", "pass"
    )
    findings = check(folder)
    assert [found.name for found in findings if found.verdict == "fail"] == ["buffers"]
    for name in OF_ANSWERS:
        assert "buffers are garbage" in said(findings, name, "skip")[0]


def test_answers_without_numbers_are_not_measured(tmp_path):
    folder = write_foreign(
        tmp_path / "broken",
        "        return BaseModelOutputWithPast(states, past_key_values)",
        "        return BaseModelOutputWithPast(states / 0, past_key_values)",
    )
    findings = check(folder)
    assert said(findings, "forward") == ["NaN or infinity in logits"]
    assert said(findings, "causality", "skip") == ["forward failed: see above"]


@pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.23"), reason="this transformers saves the field"
)
def test_a_field_that_generate_knows_is_named_once(tmp_path):
    field = "self.causal = causal\n"
    folder = write_foreign(tmp_path / "broken", field, f"{field}        self.top_k = 2\n")
    findings = check(folder)
    assert "rename the fields {'top_k': 2}" in said(findings, "parameters")[0]
    assert said(findings, "second save", "skip") == ["save_pretrained failed before"]


TOKENIZER = """
from transformers import PreTrainedTokenizer


class OwnTokenizer(PreTrainedTokenizer):
    def __init__(self, **kwargs):
        {early}self.words = {{f"w{{i}}": i for i in range(61)}}
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return len(self.words)

    def get_vocab(self):
        return dict(self.words)
"""


@pytest.mark.parametrize("early", ["", "super().__init__(**kwargs); "])
def test_a_tokenizer_of_its_own_is_run_and_its_own_fault_is_named(early, tmp_path):
    folder = write_foreign(tmp_path / "folder")
    (folder / "tokenization_own.py").write_text(TOKENIZER.format(early=early), encoding="utf-8")
    auto_map = {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}
    edit_json(folder / "tokenizer_config.json", auto_map=auto_map, tokenizer_class="OwnTokenizer")
    findings = check(folder)
    assert said(findings, "tokenizer loads", "skip")
    if early:
        (detail,) = said(findings, "loads: AutoTokenizer")
        assert "words" in detail
        assert ", at tokenization_own.py:" in detail
    else:
        assert said(findings, "loads: AutoTokenizer", "ok") == ["OwnTokenizer"]


def test_what_transformers_and_torch_require_may_be_imported(tmp_path):
    """PyYAML is the package of the module yaml."""
    lines = (line for name in ("transformers", "torch") for line in requires(name))
    needed = {Requirement(line).name for line in lines if "extra ==" not in line}
    assert {name.replace("_", "-").replace("yaml", "pyyaml") for name in PROMISED} <= needed
    folder = write_foreign(tmp_path / "folder")
    prepend(folder / FILE, "from huggingface_hub import ModelCard\nimport filelock\n")
    assert not said(check(folder, run=False), "absolute imports", "warn")


def test_a_folder_in_the_folder_is_no_missing_file(tmp_path):
    folder = write_foreign(tmp_path / "folder")
    (folder / "utils").mkdir()
    (folder / "utils" / "misc.py").touch()
    prepend(folder / FILE, "from .utils import misc\n")
    (detail,) = said(check(folder, run=False), "relative imports")
    assert "utils/ is a folder" in detail


def test_a_name_that_the_class_and_the_configuration_do_not_share_is_named(tmp_path):
    folder = write_foreign(tmp_path / "folder", model_type="another")
    (detail,) = said(check(folder, run=False), "auto_map", "warn")
    assert "'another' in config.json and 'foreign' in" in detail


def test_an_auto_class_that_transformers_has_no_more_is_named(tmp_path):
    gone = {"AutoModelForVision2Seq": CONFIG["auto_map"]["AutoModelForCausalLM"]}
    folder = write_foreign(tmp_path / "folder", auto_map={**CONFIG["auto_map"], **gone})
    (detail,) = said(check(folder), "loads: AutoModelForVision2Seq")
    assert "has no AutoModelForVision2Seq: name one that it has" in detail


def test_what_one_cause_skips_is_one_line(tmp_path):
    folder = write_foreign(tmp_path / "folder")
    (folder / "model.safetensors").unlink()
    findings = check(folder)
    assert said(findings, LOADS, "skip") == ["there are no weights"]
    *lines, total = report_lines(findings)
    skipped = [line for line in lines if line.startswith("skip")]
    (line,) = (line for line in skipped if "does not load" in line)
    assert "13 checks" in line
    assert "second save" in line
    assert len(skipped) < sum(found.verdict == "skip" for found in findings)
    assert f"{sum(found.verdict == 'skip' for found in findings)} skipped" in total


# transformers 5.24 keeps no cache by another name than `cache` between two tokens.
OTHER_NAMES = ["cache"] if "cache" in ALL_CACHE_NAMES else ["cache_params", "state"]
HEAD_FORWARD = FOREIGN[FOREIGN.rindex("    def forward(") :]
# A cache by the name that state space models give it; generate() leaves it to the model.
STATEFUL = """
    _is_stateful = True

    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False

    def prepare_inputs_for_generation(self, input_ids, cache_params=None, attention_mask=None,
                                      use_cache=None, **kwargs):
        ids = input_ids if cache_params is None else input_ids[:, -1:]
        given = {"input_ids": ids, "attention_mask": attention_mask, "use_cache": use_cache}
        return {**given, "cache_params": cache_params}

    def forward(self, input_ids, attention_mask=None, cache_params=None, use_cache=None, **kwargs):
        if use_cache and cache_params is None:
            cache_params = DynamicCache()
        outputs = self.model(input_ids, attention_mask, None, cache_params)
        return StateOutput(self.lm_head(outputs.last_hidden_state), cache_params)
"""
OUTPUT = """
from dataclasses import dataclass
from transformers import DynamicCache
from transformers.utils import ModelOutput

@dataclass
class StateOutput(ModelOutput):
    logits: torch.FloatTensor | None = None
    cache_params: DynamicCache | None = None

class ForeignForCausalLM("""


@pytest.mark.parametrize("name", OTHER_NAMES)
@pytest.mark.parametrize("forgets", [False, True])
def test_a_cache_of_another_name_is_tried_as_well(forgets, name, tmp_path):
    folder = write_foreign(tmp_path / "folder")
    code = FOREIGN.replace(HEAD_FORWARD, STATEFUL).replace("\nclass ForeignForCausalLM(", OUTPUT)
    if forgets:
        code = code.replace("if cache_params is None else input_ids[:, -1:]", "")
    (folder / FILE).write_text(code.replace("cache_params", name), encoding="utf-8")
    findings = check(folder, run_anyway=True)
    assert bool(said(findings, "cache", "fail")) == forgets
    assert bool(said(findings, "cache", "ok")) != forgets


def test_a_tensor_of_another_shape_has_its_remedy(tmp_path):
    folder = write_foreign(tmp_path / "folder")
    edit_weights(folder / "model.safetensors", double_the_vocabulary)
    (detail,) = said(check(folder), LOADS)
    name = "model.embed_tokens.weight"
    assert f"{name} is [122, 16] in the file and [61, 16] by config.json: correct" in detail


def double_the_vocabulary(tensors):
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].repeat(2, 1)
