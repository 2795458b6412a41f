"""Two processes give the answer of one, tensor parallel and fully sharded."""

import subprocess
import sys
from itertools import product

import pytest
import torch

from support.families import DECODER, ENCODER, FAMILIES, SEQ2SEQ
from support.leaves import ARCHITECTURES, backend_of
from support.paths import ROOT

pytestmark = pytest.mark.usefixtures("warm_python")

# A vocabulary that two processes can halve: before 5.17 transformers gathers equal parts only.
SIZES = {"vocab_size": 102, "num_attention_heads": 6, "num_key_value_heads": 2}
# Attention that needs all heads at once stays whole in each process; the rest is sharded.
WHOLE = [
    (DECODER, {"qk_norm": "all", "norm_position": "inside"}),
    (DECODER, {"score_bias": "alibi", "parallel_residual": "own", "residual_multiplier": 0.3}),
    (SEQ2SEQ, {"score_bias": "relative", "mlp_type": "gated"}),
    (SEQ2SEQ, {"score_bias": "relative_per_layer", "qk_norm": "all"}),
    (ENCODER, {"score_bias": "relative", "norm_position": "both"}),
]

TENSOR_PARALLEL = """
import sys, torch, transformers, torch.distributed as dist, hf_tformer
dist.init_process_group("gloo")
for case in sys.argv[1:]:
    folder, auto = case.split("=")
    saved = torch.load(folder + "/expected.pt", weights_only=True)
    halves = transformers.DistributedConfig(tp_size=2)
    model = getattr(transformers, auto).from_pretrained(folder, distributed_config=halves)
    layer = model.get_decoder().layers[0]
    for module, rows in ((layer.self_attn.q_proj, saved["rows"]), (layer.mlp.up_proj, 22)):
        local = module.weight
        local = local.to_local() if hasattr(local, "to_local") else local
        assert local.shape[0] == rows, f"{case}: {tuple(local.shape)} of {rows} rows"
    model.train()(**saved["inputs"]).loss.backward()
    for name, parameter in model.named_parameters():
        found, expected = parameter.grad, saved["gradients"][name]
        found = found.full_tensor() if hasattr(found, "full_tensor") else found
        torch.testing.assert_close(
            found, expected, rtol=1e-4, atol=1e-5, msg=lambda text: f"{case}, {name}: {text}"
        )
    with torch.no_grad():
        logits = model.eval()(**saved["inputs"]).logits
    torch.testing.assert_close(
        logits, saved["logits"], rtol=1e-4, atol=1e-5, msg=lambda text: f"{case}: {text}"
    )
    print("same")
"""

FULLY_SHARDED = """
import sys, torch, transformers, torch.distributed as dist, hf_tformer
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))

def shard_by_class_names(auto, folder):  # as accelerate does
    model = auto.from_pretrained(folder)
    for module in model.modules():
        if type(module).__name__ in model._no_split_modules:
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def shard_by_plan(auto, folder):
    halves = transformers.DistributedConfig(fsdp_size=2)
    return auto.from_pretrained(folder, distributed_config=halves)

for case in sys.argv[1:]:
    folder, auto = case.split("=")
    saved = torch.load(folder + "/expected.pt", weights_only=True)
    mine = {name: value[dist.get_rank()::2] for name, value in saved["inputs"].items()}
    for shard in (shard_by_class_names, shard_by_plan):
        model = shard(getattr(transformers, auto), folder)
        loss = model(**mine, num_items_in_batch=saved["count"]).loss
        (2 * loss).backward()  # sharding averages over processes
        for name, parameter in model.named_parameters():
            whole, expected = parameter.grad.full_tensor(), saved["gradients"][name]
            torch.testing.assert_close(
                whole, expected, rtol=1e-4, atol=1e-6,
                msg=lambda text: f"{case}, {shard.__name__}, {name}: {text}",
            )
    print("same")
"""


def run_in_two_processes(script, folder, cases):
    """One start for all cases, {folder: auto class}: starting takes most of the time."""
    path = folder / "script.py"
    path.write_text(script)
    command = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    run = subprocess.run(
        [sys.executable, *command, str(path), *(f"{place}={cases[place]}" for place in cases)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert run.stdout.count("same") == 2 * len(cases), run.stderr[-3000:]


@pytest.mark.slow
def test_a_tensor_parallel_model_has_the_logits_and_the_gradients_of_one_process(tmp_path):
    cases = {}
    for family, tie in product(FAMILIES, (True, False)):
        folder = tmp_path / f"{family.name}, {'tied' if tie else 'untied'}"
        save_step(family, folder, **SIZES, mlp_type="gated", qk_norm=True, tie_word_embeddings=tie)
        cases[folder] = family.auto.__name__
    for family, fields in WHOLE:
        folder = tmp_path / f"{family.name}, {fields}".replace("'", "")
        save_step(family, folder, **SIZES, **fields, is_whole=True)
        cases[folder] = family.auto.__name__
    run_in_two_processes(TENSOR_PARALLEL, tmp_path, cases)


def test_a_sharded_training_step_has_the_gradients_of_one_process(tmp_path):
    cases = {}
    for family, tie in product(FAMILIES, (True, False)):
        folder = tmp_path / f"{family.name}, {'tied' if tie else 'untied'}"
        save_step(family, folder, tie_word_embeddings=tie)
        cases[folder] = family.auto.__name__
    run_in_two_processes(FULLY_SHARDED, tmp_path, cases)


@pytest.mark.slow
def test_what_other_architectures_have_is_sharded_as_well(tmp_path):
    cases = {}
    for family in FAMILIES:
        for name, fields in ARCHITECTURES[family.name].items():
            save_step(family, tmp_path / f"{family.name}, {name}", **fields)
            cases[tmp_path / f"{family.name}, {name}"] = family.auto.__name__
    run_in_two_processes(FULLY_SHARDED, tmp_path, cases)


def save_step(family, folder, is_whole=False, **changes):
    """A model, a batch, and what one process makes of it; `is_whole`: its attention stays so."""
    model = family.build(backend_of(changes), **changes)
    model.save_pretrained(folder)
    batch = family.training_batch(
        [[5, 6, 7, 8], [9, 10], [11], [12, 13, 14]], [[5], [6, 7], [8, 9, 10], [11, 12]]
    )
    _, labels = family.shifted(batch["labels"][..., None], batch["labels"])
    count = int((labels != -100).sum())
    output = model(**batch, num_items_in_batch=count)
    output.loss.backward()
    saved = {
        "inputs": batch,
        "count": count,
        "rows": 60 if is_whole else 30,
        "logits": output.logits.detach(),
        "gradients": {name: p.grad for name, p in model.named_parameters()},
    }
    torch.save(saved, folder / "expected.pt")


@pytest.mark.parametrize("mlp_type", ["plain", "gated"])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_the_plans_name_modules_that_exist(family, qk_norm, mlp_type):
    model = family.build(mlp_type=mlp_type, qk_norm=qk_norm)
    names = {name for name, _ in (*model.named_modules(), *model.named_parameters())}
    patterns = {**model.tp_plan, **(model._fsdp_plan or {}), **(model._pp_plan or {})}
    assert patterns
    missing = [pattern for pattern in patterns if not matches(pattern, names)]
    assert not missing


def matches(pattern, names):
    return any(
        len(pattern.split(".")) == len(name.split("."))
        and all(p in ("*", n) for p, n in zip(pattern.split("."), name.split("."), strict=True))
        for name in names
    )
