"""Compares what a plan predicts for a case of plan_traffic.py with what torch sends."""

import json
import subprocess
from collections import Counter
from pathlib import Path

from hf_tformer.plan.layouts import StagedLayout
from hf_tformer.plan.memory import Recipe
from hf_tformer.plan.parameters import distinct_parameters
from hf_tformer.plan.skeleton import skeleton_of
from hf_tformer.plan.traffic import step_traffic
from support import plan_traffic
from support.families import FAMILIES


def assert_traffic(cases, command):
    program = Path(__file__).with_name("plan_traffic.py")
    words = [",".join(map(str, case)) for case in cases]
    run = subprocess.run(
        [*command, str(program), *words], capture_output=True, text=True, timeout=300
    )
    answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(cases), run.stderr[-3000:]
    for case, answer in zip(cases, answers, strict=True):
        assert answer == {**answer, **planned_answer(*case)}, case


def planned_answer(replicate, shard, tensor, checkpointed, logits, name, tied):
    family = next(family for family in FAMILIES if family.name == name)
    model = skeleton_of(family.build(**plan_traffic.sizes(tied)).config)
    layout = StagedLayout(replicate, shard, tensor)
    options = {"is_checkpointed": checkpointed, "has_all_logits": logits}
    options["precision"] = "float32"
    recipe = Recipe(plan_traffic.LENGTH, plan_traffic.ROWS, **options)
    sent = Counter()
    for found in step_traffic(model, layout, recipe):
        sent[found.kind] += found.bytes
    numbers = sum(p.numbers(tensor, shard) for p in distinct_parameters(model))
    return {"sent": dict(sent), "numbers": numbers}
