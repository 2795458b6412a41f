"""A plan against real runs: resident memory, bytes on gloo, and layouts of a thousand devices."""

import json
import os
import subprocess
import sys

import pytest

from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM
from hf_tformer.plan.layouts import StagedLayout
from hf_tformer.plan.memory import Recipe, step_memory
from hf_tformer.plan.parameters import distinct_parameters
from hf_tformer.plan.skeleton import skeleton_of
from hf_tformer.plan.spans import measure_spans
from support.paths import TESTS
from support.plan_answers import assert_traffic

pytestmark = pytest.mark.slow

SIZES = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 6}
SIZES |= {"vocab_size": 8000, "num_attention_heads": 8, "num_key_value_heads": 4}
ROWS, LENGTH = 2, 512
# glibc else raises what it calls a large block as it goes, and keeps what is freed.
STEADY = {"MALLOC_MMAP_THRESHOLD_": str(128 * 2**10), "OMP_NUM_THREADS": "1"}


def launcher(processes):
    options = [f"--nproc-per-node={processes}", "--standalone"]
    return [sys.executable, *(["-m", "torch.distributed.run", *options] if processes > 1 else [])]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """By whether the tables are tied."""
    places = {}
    for tie in (True, False):
        places[tie] = tmp_path_factory.mktemp("tied" if tie else "untied")
        config = TformerDecoderConfig(**SIZES, tie_word_embeddings=tie)
        TformerDecoderForCausalLM(config).save_pretrained(places[tie])
    return places


@pytest.mark.parametrize("is_checkpointed", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize(
    ("sizes", "tie", "has_all_logits"),
    [
        ((1, 1, 1), True, False),
        ((1, 1, 1), False, True),
        ((2, 1, 1), False, False),
        ((1, 2, 1), False, True),
        ((1, 2, 1), True, True),
        ((1, 1, 2), False, True),
    ],
)
def test_resident_memory_is_what_was_planned(folders, sizes, tie, has_all_logits, is_checkpointed):
    layout = StagedLayout(*sizes)
    program = TESTS / "support" / "plan_memory.py"
    numbers = [*sizes, int(is_checkpointed), int(has_all_logits), ROWS, LENGTH]
    run = subprocess.run(
        [*launcher(layout.processes), str(program), str(folders[tie]), *map(str, numbers)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | STEADY,
    )
    peaks = [int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("peak")]
    assert len(peaks) == layout.processes, run.stderr[-3000:]
    options = {"precision": "float32", "is_checkpointed": is_checkpointed}
    recipe = Recipe(LENGTH, ROWS, **options, has_all_logits=has_all_logits)
    config = TformerDecoderConfig(**SIZES, tie_word_embeddings=tie)
    spans = measure_spans(config, recipe.one_pass(layout.tensor, layout.is_sharded))
    planned = step_memory(skeleton_of(config), spans, layout, recipe)
    assert planned.peak == pytest.approx(max(peaks), rel=0.15)


@pytest.mark.parametrize(
    "layouts", [[(2, 1, 1), (1, 2, 1), (1, 1, 2)], [(1, 4, 1), (2, 2, 1), (1, 2, 2)]], ids=str
)
def test_bytes_are_those_that_gloo_sends(layouts):
    cases = [
        (*layout, checkpointed, logits, name, tied)
        for layout in layouts
        for checkpointed, logits, name, tied in (
            (False, True, "decoder", True),
            (True, True, "decoder", False),
            (True, False, "encoder", True),
        )
    ]
    replicate, shard, tensor = layouts[0]
    assert_traffic(cases, launcher(replicate * shard * tensor))


# Llama 3's shapes, on the meta device, in a group of processes that are not there.

HELD = """
import json, sys, torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import logging
from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM
from hf_tformer.plan.layouts import StagedLayout
logging.set_verbosity_error()
fields, processes = json.loads(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
for sizes in json.loads(sys.argv[3]):
    config = StagedLayout(*sizes).sizes(False)
    config, _, mesh = TformerDecoderForCausalLM.prepare_distribute_model(config)
    with torch.device("meta"):
        model = TformerDecoderForCausalLM(TformerDecoderConfig(**fields))
    # As from_pretrained does, which ties tables only when they are sharded.
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    model = TformerDecoderForCausalLM.maybe_distribute_model(model, config, mesh)
    model.tie_weights()
    held = (getattr(p, "to_local", lambda p=p: p)() for p in model.parameters())
    print("held", sum(local.numel() for local in held))
"""

VOCABULARY = {"vocab_size": 128256, "num_key_value_heads": 8}
LLAMAS = {
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    | {"num_attention_heads": 32, "tie_word_embeddings": True},
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    | {"num_attention_heads": 32, "tie_word_embeddings": False},
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
    | {"num_attention_heads": 64, "tie_word_embeddings": False},
}


def is_refused(sizes, config):
    """A tied table that is cut twice, into parts that are not alike."""
    try:
        StagedLayout(*sizes).refuse(config)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("processes", [8, 64, 256, 1024])
@pytest.mark.parametrize("name", LLAMAS)
def test_large_models_are_held_as_planned(name, processes):
    fields = LLAMAS[name] | VOCABULARY
    layouts = [(1, processes, 1), (1, processes // 8, 8), (processes // 8, 4, 2)]
    config = TformerDecoderConfig(**fields)
    layouts = [sizes for sizes in layouts if processes > 8 or sizes[1] > 1]
    layouts = [sizes for sizes in layouts if not is_refused(sizes, config)]
    command = [sys.executable, "-c", HELD, json.dumps(fields), str(processes), json.dumps(layouts)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    found = [int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("held")]
    parameters = distinct_parameters(skeleton_of(config))
    expected = [
        sum(parameter.numbers(tensor, shard) for parameter in parameters)
        for _, shard, tensor in layouts
    ]
    assert found == expected, run.stderr[-3000:]
