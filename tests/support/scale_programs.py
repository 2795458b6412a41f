"""train_language_model.py on one process and on several, forked from one that imported everything.

`python -m scale_programs FOLDER few|all` writes what each run printed and trained.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import train_language_model

from support.forked import in_processes

ALIKE = (
    "--text words.txt --vocab_size 300 --vocab_multiple 4 --block_size 16 --batch_size 3"
    " --global_batch_size 8 --hidden_size 32 --num_hidden_layers 2 --num_attention_heads 4"
    " --dropout 0 --learning_rate 1e-2 --warmup_steps 2 --log_steps 1 --save_steps 5 --max_steps 8"
)


@dataclass
class Case:
    """A run of so many processes; `before` stops after 5 of its 8 steps and is gone on from."""

    processes: int
    flags: str = ""
    before: "Case | None" = None


# An epoch is 7 steps, so those after a checkpoint cross from one to the next.
FEW = {
    "one": Case(1),
    "2 shards, then one": Case(1, before=Case(2, "--shard 2")),
}
ALL = {
    "2 shards": Case(2, "--shard 2"),
    "one, 1 worker": Case(1, "--workers 1"),
    "one, 2 workers": Case(1, "--workers 2"),
    "2 copies": Case(2, "--workers 1"),
    "2 parts": Case(2, "--tensor 2"),
    "2 shards of 2 parts": Case(4, "--shard 2 --tensor 2"),
    "2 copies of 2 shards": Case(4, "--shard 2"),
    "2 copies of 2 parts": Case(4, "--tensor 2"),
    "one, then 2 parts": Case(2, "--tensor 2", before=Case(1)),
    "2 copies, then 4 shards": Case(4, "--shard 4", before=Case(2)),
    "2 parts, saved in the background": Case(2, "--tensor 2 --save_in_background"),
    "2 shards, activations made anew": Case(2, "--shard 2 --activation_checkpointing"),
}


def run_all(cases):
    for name, case in cases.items():
        flags = [*ALIKE.split(), "--output", name]
        if case.before:
            in_processes(
                case.before.processes, stop_after_five, [*flags, *case.before.flags.split()]
            )
            flags.append("--resume")
        in_processes(case.processes, run_program, [*flags, *case.flags.split()])


def run_program(flags):
    """Of several processes the first alone prints."""
    name = flags[flags.index("--output") + 1]
    sys.argv = ["train_language_model.py", *flags]
    with Path(f"{name}.log").open("a", encoding="utf-8") as sys.stdout:
        train_language_model.main()


def stop_after_five(flags):
    """As a run that dies where its next step would begin."""

    class Stopped(BaseException):
        pass

    import hf_tformer.scale.loop as loop

    prepare = loop.prepare_step

    def prepare_or_stop(optimizer, step, *others):
        if step == 5:
            raise Stopped
        prepare(optimizer, step, *others)

    loop.prepare_step = prepare_or_stop
    try:
        run_program(flags)
    except Stopped:
        return
    raise AssertionError("the run was to stop")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_all({"few": FEW, "all": {**FEW, **ALL}}[sys.argv[1]])
