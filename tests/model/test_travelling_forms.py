"""What a saved model carries in a simple form, and the package completes: each stands alone."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import hf_tformer
from hf_tformer import TformerSeq2SeqEncoderModel
from hf_tformer.families import FAMILIES
from support.families import SEQ2SEQ, by_model_type, random_rows

pytestmark = pytest.mark.usefixtures("warm_python")

ROWS, TARGETS = random_rows([9, 3, 7, 5]), random_rows([4, 6, 3, 8], seed=1)
EXACT = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The files that travel, as a folder that the package does not know."""
    folder = tmp_path_factory.mktemp("copies")
    model = Path(hf_tformer.__file__).parent / "model"
    (folder / "travelled").mkdir()
    for file in model.glob("*.py"):
        (folder / "travelled" / file.name).write_text(file.read_text(encoding="utf-8"))
    sys.path.insert(0, str(folder))
    yield lambda name: importlib.import_module(f"travelled.{name}")
    sys.path.remove(str(folder))


SETTINGS = [
    {},
    {"label_smoothing": 0.1},
    {"z_loss": 1e-2},
    {"label_smoothing": 0.2, "z_loss": 1e-2, "num_items_in_batch": 123},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "smoothing", "z-loss", "everything"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_the_loss_by_chunks_has_the_gradients_of_the_full_logits(copy, settings, bias, monkeypatch):
    losses = copy("losses")
    monkeypatch.setattr(losses, "CHUNK_TOKENS", 7)
    assert losses.sum_by_chunks.__module__ == "travelled.losses"
    torch.manual_seed(0)
    states, head = torch.randn(4, 8, 12), nn.Linear(12, 31, bias=bias)
    labels = torch.randint(31, (4, 8))
    labels[0, :3] = -100

    def results(is_lean):
        inputs = states.clone().requires_grad_()
        head.zero_grad()
        logits = losses.Unprojected(inputs, head) if is_lean else head(inputs)
        loss = losses.language_model_loss(logits, labels, **settings)
        loss.backward()
        return [loss, inputs.grad, *(parameter.grad.clone() for parameter in head.parameters())]

    torch.testing.assert_close(results(True), results(False), **EXACT)


def test_the_loss_by_chunks_never_holds_what_is_as_large_as_the_logits(copy):
    losses = copy("losses")
    states, head = torch.randn(2048, 16, requires_grad=True), nn.Linear(16, 5003)
    labels = torch.randint(5003, (2048,))

    def largest_allocation(logits):
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            losses.language_model_loss(logits(), labels).backward()
        return max(event.self_cpu_memory_usage for event in profile.events())

    logits = 2048 * 5003 * 4  # bytes
    assert largest_allocation(lambda: head(states)) >= logits
    assert largest_allocation(lambda: losses.Unprojected(states, head)) <= logits / 3


def test_a_head_that_is_more_than_its_weight_gets_its_logits_whole(copy):
    may_be_called_by_chunks = copy("losses").may_be_called_by_chunks
    assert may_be_called_by_chunks(nn.Linear(3, 5))

    class Adapted(nn.Linear):
        pass

    wrapped = nn.Linear(3, 5)
    wrapped.forward = wrapped.forward
    assert not may_be_called_by_chunks(Adapted(3, 5))
    assert not may_be_called_by_chunks(wrapped)
    assert not may_be_called_by_chunks(nn.Sequential(nn.Linear(3, 5)))


TRAIN = """
import json, sys, torch, transformers
sys.modules["hf_tformer"] = None
for folder, auto in json.loads(sys.argv[1]):
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).train()
    output = model(**torch.load(folder + "/batch.pt", weights_only=True))
    assert output.logits is None, "all logits were made"
    output.loss.backward()
    expected = torch.load(folder + "/results.pt", weights_only=True)
    torch.testing.assert_close(output.loss, expected.pop("loss"), rtol=1e-5, atol=1e-6)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected.pop(name), rtol=1e-4, atol=1e-6)
    assert not expected
print("same")
"""


def test_a_saved_folder_trains_alike_where_the_package_is_not_installed(tmp_path):
    cases = []
    for family in by_model_type.values():
        folder = tmp_path / family.name
        model = family.build(dropout=0.0, label_smoothing=0.1).train()
        model.save_pretrained(folder)
        batch = family.training_batch(ROWS, TARGETS)
        torch.save(dict(batch), folder / "batch.pt")
        loss = model(**batch).loss
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        torch.save({"loss": loss.detach(), **gradients}, folder / "results.pt")
        cases.append((str(folder), family.auto.__name__))
    hidden = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**hidden, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, json.dumps(cases)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "same", done.stderr


@pytest.mark.parametrize(
    ("sizes", "tied", "is_refused"),
    [
        ((2, 1, 1), True, True),
        ((2, 1, 1), False, False),
        ((1, 2, 1), True, False),
        ((1, 1, 2), False, True),
        ((97, 1, 1), True, False),
    ],
)
def test_a_layout_that_would_train_wrongly_is_refused_without_the_package(
    copy, sizes, tied, is_refused
):
    fsdp_size, tp_size, pp_size = sizes
    layout = SimpleNamespace(fsdp_size=fsdp_size, tp_size=tp_size, pp_size=pp_size)
    model = SimpleNamespace(
        config=SimpleNamespace(vocab_size=97),
        all_tied_weights_keys={"lm_head.weight": "embed_tokens.weight"} if tied else {},
    )
    distribute = copy("layers").TformerPreTrainedModel.maybe_distribute_model
    if is_refused:
        with pytest.raises(ValueError, match=r"fsdp_size is .* need `pip install hf-tformer`"):
            distribute(model, layout, None)
    else:
        assert distribute(model, layout, None) is model


@pytest.mark.parametrize("model_type", FAMILIES)
def test_no_constructor_changes_its_configuration(model_type):
    family = by_model_type[model_type]
    for name in {*FAMILIES[model_type].models.values()}:
        config = family.config()
        before = config.to_dict()
        getattr(hf_tformer, name)(config)
        assert config.to_dict() == before, name


def test_a_full_model_made_after_its_encoder_names_itself(tmp_path):
    config = SEQ2SEQ.config()
    TformerSeq2SeqEncoderModel(config).save_pretrained(tmp_path / "encoder")
    SEQ2SEQ.model_class(config).save_pretrained(tmp_path / "full")
    opened = {
        name: json.loads((tmp_path / name / "config.json").read_text())["auto_map"]["AutoModel"]
        for name in ("encoder", "full")
    }
    assert opened["encoder"] == "modeling_seq2seq.TformerSeq2SeqEncoderModel"
    assert opened["full"] == "modeling_seq2seq.TformerSeq2SeqModel"
