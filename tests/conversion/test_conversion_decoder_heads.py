"""Decoders convert with whichever head their folder holds, or as a body alone."""

import json
from dataclasses import replace

import pytest
import transformers

import hf_tformer
from conversion import export_checkpoint, import_checkpoint, verify
from conversion.engine.decoder_heads import HEADS, our_prefix, prefix_of
from conversion.engine.format import DECODERS, Format
from conversion.engine.registry import FORMATS
from support.converting import CASES, assert_refused, edit_config, edit_weights, save_theirs
from support.parity import randomise
from support.parity_decoder import llama

PAIRS = [
    (name, f"{prefix_of(format)}{end}")
    for name, format in FORMATS.items()
    if isinstance(format, Format) and format.our_classes in DECODERS
    for end in HEADS
    if hasattr(transformers, f"{prefix_of(format)}{end}")
]
# One head of each format quickly, and not the same one of all.
QUICK = PAIRS[::3]
ONE_OF_EACH = {case.their_classes[0].model_type: case for case in CASES.values()}


def save_head(format, head, folder):
    """Save a random model of theirs with this head, as small as the parity tests have it."""
    case = ONE_OF_EACH[format]
    options = {"pad_token_id": 0, "num_labels": 3} if "Classification" in head else {}
    model_class = getattr(transformers, head)
    if case.their_classes[0].model_type == "opt":
        options.pop("pad_token_id", None)
    chosen = replace(case, both={**case.both, **options})
    model = randomise(chosen.build_one((case.their_classes[0], model_class), case.theirs)).eval()
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("format", "head"),
    [p if p in QUICK else pytest.param(*p, marks=pytest.mark.slow) for p in PAIRS],
)
def test_a_head_answers_the_same_and_comes_back_as_the_same_answers(format, head, tmp_path):
    save_head(format, head, tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    assert done.compared == ("hidden states" if head.endswith("Model") else "logits")
    (ours,) = json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"]
    ours_prefix = our_prefix(FORMATS[format].our_classes)
    assert ours.removeprefix(ours_prefix) == head.removeprefix(prefix_of(FORMATS[format]))
    assert getattr(hf_tformer, ours).from_pretrained(tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to=format)
    assert verify(tmp_path / "theirs", tmp_path / "back") == 0


def test_the_names_of_classes_survive(tmp_path):
    labels = {0: "bad", 1: "good"}
    case = llama(pad_token_id=0, id2label=labels, problem_type="single_label_classification")
    classes = (case.their_classes[0], transformers.LlamaForSequenceClassification)
    case.build_one(classes, {}).save_pretrained(tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="llama")
    for folder in ("ours", "back"):
        config = transformers.AutoConfig.from_pretrained(tmp_path / folder)
        assert config.id2label == labels
        assert config.problem_type == "single_label_classification"


def test_a_classifier_without_a_padding_id_is_compared_on_one_sequence(tmp_path):
    case = llama(num_labels=3)
    classes = (case.their_classes[0], transformers.LlamaForSequenceClassification)
    randomise(case.build_one(classes, {})).save_pretrained(tmp_path / "theirs")
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4


def test_a_language_model_whose_head_is_absent_is_imported_as_its_body(tmp_path):
    save_theirs(llama(), tmp_path / "theirs")
    edit_weights(tmp_path / "theirs", lambda tensors: tensors.pop("lm_head.weight"))
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    assert done.compared == "hidden states"
    assert "LlamaForCausalLM, which config.json names" in done.left_out[0]


def test_a_head_that_no_rule_explains_is_refused_by_its_name(tmp_path):
    save_theirs(llama(), tmp_path / "theirs")
    edit_config(tmp_path / "theirs", architectures=["LlamaForRewards"])
    edit_weights(tmp_path / "theirs", lambda tensors: tensors.pop("lm_head.weight"))
    assert_refused(tmp_path, "architectures is ['LlamaForRewards']", "LlamaForCausalLM, LlamaModel")


@pytest.mark.parametrize("name", ["LLaMAForCausalLM", "YiForCausalLM"])
def test_a_language_model_under_the_name_of_its_authors_is_one(name, tmp_path):
    save_theirs(llama(), tmp_path / "theirs")
    edit_config(tmp_path / "theirs", architectures=[name])
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").compared == "logits"
