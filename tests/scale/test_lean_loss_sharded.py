"""Where the output projection is sharded the loss stays lean, with the gradients of full logits."""

import subprocess
import sys
from itertools import product

import pytest
import torch
import transformers
from packaging.version import parse

from support.families import FAMILIES
from support.paths import ROOT

pytestmark = pytest.mark.usefixtures("warm_python")

# Before, transformers gathers equal parts only.
SIZE = {"vocab_size": 101 if parse(transformers.__version__) >= parse("5.23") else 104}
# Tied; untied, with everything that the loss can be asked for.
CASES = [
    {"tie_word_embeddings": True},
    {"tie_word_embeddings": False, "label_smoothing": 0.2, "z_loss": 1e-2, "logit_scale": 0.3},
]
COMPARE = """
import sys, torch, transformers, torch.distributed as dist, hf_tformer
from torch.distributed.tensor import DTensor
from hf_tformer.model import losses
losses.CHUNK_TOKENS = 7
dist.init_process_group("gloo")
layouts, *cases = sys.argv[1:]

def step(model, batch, **settings):
    model.zero_grad()
    output = model(**batch, num_items_in_batch=40, **settings)
    output.loss.backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        gradients[name] = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
    return output.logits, output.loss.detach(), gradients

def compare(case, layout):
    # Processes that share a text are numbered one after the other.
    place, parts = dist.get_rank() // layout.tp_size, layout.fsdp_size
    folder, auto = case.split("=")
    batch = torch.load(folder + "/batch.pt", weights_only=True)
    mine = {name: value[place::parts] for name, value in batch.items()}
    model = getattr(transformers, auto).from_pretrained(folder, distributed_config=layout).train()
    full, *expected = step(model, mine, return_logits=True)
    for _ in range(2):  # again: what gathers weights is left as it was
        none, *found = step(model, mine)
        assert full is not None and none is None, f"{case}: all logits were made"
        torch.testing.assert_close(
            found, expected, rtol=1e-4, atol=1e-6, msg=lambda text: f"{case}: {text}"
        )
    handle = model.lm_head.register_forward_hook(lambda *_: None)
    assert step(model, mine)[0] is not None, f"{case}: a hook was passed over"
    handle.remove()

for sizes in layouts.split():
    fsdp, tp = map(int, sizes.split("x"))
    for case in cases:
        compare(case, transformers.DistributedConfig(fsdp_size=fsdp, tp_size=tp))
        print("same")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "layouts"), [(2, ["2x1", "1x2"]), (4, ["1x4", "2x2"])], ids=["2", "4"]
)
def test_a_sharded_head_makes_no_full_logits_and_the_same_gradients(tmp_path, processes, layouts):
    """Fully sharded, tensor parallel, and both."""
    cases = []
    for family, fields in product(FAMILIES, CASES):
        known = {name: value for name, value in fields.items() if hasattr(family.config(), name)}
        if fields["tie_word_embeddings"] and "2x2" in layouts:
            known["vocab_size"] = 104  # tied tables that are cut both ways have equal parts
        folder = tmp_path / f"{family.name}{len(cases)}"
        model = family.build(num_attention_heads=8, num_key_value_heads=4, **{**SIZE, **known})
        model.save_pretrained(folder)
        batch = family.training_batch(
            [[5, 6, 7, 8], [9, 10], [11], [12, 13, 14]], [[5], [6, 7], [8, 9, 10], [11, 12]]
        )
        torch.save(batch, folder / "batch.pt")
        cases.append(f"{folder}={family.auto.__name__}")
    (tmp_path / "compare.py").write_text(COMPARE)
    launch = f"-m torch.distributed.run --nproc-per-node={processes} --standalone".split()
    run = subprocess.run(
        [sys.executable, *launch, str(tmp_path / "compare.py"), " ".join(layouts), *cases],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert run.stdout.count("same") == processes * len(layouts) * len(cases), run.stderr[-3000:]
