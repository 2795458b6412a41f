"""Two processes give the answer of one: tensor parallel forward, and a step of fully sharded
training."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from families import DECODER, SEQ2SEQ

# A vocabulary that two processes can halve: before 5.17 transformers gathers equal parts only.
SIZES = {
    "vocab_size": 102,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}

TENSOR_PARALLEL = """
import sys, torch, torch.distributed as dist, hf_tformer
from transformers import {auto}
dist.init_process_group("gloo")
saved = torch.load(sys.argv[1] + "/expected.pt", weights_only=True)
model = {auto}.from_pretrained(sys.argv[1], tp_plan="auto").eval()
local = model.get_decoder().layers[0].self_attn.q_proj.weight
local = local.to_local() if hasattr(local, "to_local") else local
assert local.shape[0] == 30, f"nothing was sharded: {{tuple(local.shape)}}"
with torch.no_grad():
    logits = model(**saved["inputs"]).logits
torch.testing.assert_close(logits, saved["logits"], rtol=1e-4, atol=1e-5)
print("same")
"""

FULLY_SHARDED = """
import sys, torch, torch.distributed as dist, hf_tformer
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from transformers import {auto}
dist.init_process_group("gloo")
saved = torch.load(sys.argv[1] + "/expected.pt", weights_only=True)
model = {auto}.from_pretrained(sys.argv[1])
mesh = init_device_mesh("cpu", (2,))
for module in model.modules():
    if type(module).__name__ in model._no_split_modules:
        fully_shard(module, mesh=mesh)
fully_shard(model, mesh=mesh)
rank = dist.get_rank()
mine = {{name: value[rank::2] for name, value in saved["inputs"].items()}}
count = saved["count"]
(2 * model(**mine, num_items_in_batch=count).loss).backward()  # sharding averages over processes
for name, parameter in model.named_parameters():
    whole = parameter.grad.full_tensor()
    torch.testing.assert_close(whole, saved["gradients"][name], rtol=1e-4, atol=1e-6)
print("same")
"""


def run_in_two_processes(script, folder):
    path = folder / "script.py"
    path.write_text(script)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--standalone",
    ]
    run = subprocess.run(
        [*command, str(path), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parent.parent,
    )
    assert run.stdout.count("same") == 2, run.stderr[-3000:]


def auto_name(family):
    return "AutoModelForCausalLM" if family is DECODER else "AutoModelForSeq2SeqLM"


@pytest.mark.parametrize("family", [DECODER, SEQ2SEQ], ids=["decoder", "seq2seq"])
def test_a_tensor_parallel_model_gives_the_logits_of_one_process(family, tmp_path):
    model = family.build(**SIZES, mlp_type="gated", qk_norm=True)
    model.save_pretrained(tmp_path)
    ids = torch.randint(3, 101, (2, 7))
    inputs = (
        {"input_ids": ids} if family is DECODER else {"input_ids": ids, "decoder_input_ids": ids}
    )
    torch.save(
        {"inputs": inputs, "logits": model(**inputs).logits.detach()}, tmp_path / "expected.pt"
    )
    run_in_two_processes(TENSOR_PARALLEL.format(auto=auto_name(family)), tmp_path)


@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("family", [DECODER, SEQ2SEQ], ids=["decoder", "seq2seq"])
def test_a_sharded_training_step_has_the_gradients_of_one_process(family, tie, tmp_path):
    model = family.build(tie_word_embeddings=tie)
    model.save_pretrained(tmp_path)
    batch = family.training_batch(
        [[5, 6, 7, 8], [9, 10], [11], [12, 13, 14]], [[5], [6, 7], [8, 9, 10], [11, 12]]
    )
    _, labels = family.shifted(batch["labels"][..., None], batch["labels"])
    count = int((labels != -100).sum())
    model(**batch, num_items_in_batch=count).loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    torch.save({"inputs": batch, "count": count, "gradients": gradients}, tmp_path / "expected.pt")
    run_in_two_processes(FULLY_SHARDED.format(auto=auto_name(family)), tmp_path)


@pytest.mark.parametrize("mlp_type", ["plain", "gated"])
@pytest.mark.parametrize("qk_norm", [True, False])
@pytest.mark.parametrize("family", [DECODER, SEQ2SEQ], ids=["decoder", "seq2seq"])
def test_the_plans_name_modules_that_exist(family, qk_norm, mlp_type):
    model = family.build(mlp_type=mlp_type, qk_norm=qk_norm)
    names = {name for name, _ in model.named_modules()}
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
