"""Which head is trained in which layout, and why not in the others."""

from dataclasses import dataclass, field

from . import heads

# Tied tables that are cut both ways have to be divisible: tie_before_sharding() in layers.py.
DIVISIBLE = {"vocab_size": 104}


@dataclass
class Layout:
    """`way` names who lays the model out; sizes are those of transformers' DistributedConfig."""

    name: str
    way: str
    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    stages: int = 1
    parts: int = 1
    schedule: str | None = None
    lengths: tuple = heads.ROWS
    changes: dict = field(default_factory=dict)

    @property
    def copies(self):
        """How many processes have rows of their own."""
        return self.replicate * self.shard

    @property
    def processes(self):
        return self.copies * self.tensor * self.stages * self.parts


LAYOUTS = (
    Layout("replicated by 2", "replicate", replicate=2),
    Layout("replicated by 4", "replicate", replicate=4),
    Layout("sharded directly by 2", "shard", shard=2),
    Layout("sharded directly by 4", "shard", shard=4),
    Layout("sharded by 2", "plans", shard=2),
    Layout("sharded by 4", "plans", shard=4),
    Layout("tensor parallel by 2", "plans", tensor=2),
    Layout("tensor parallel by 4", "plans", tensor=4),
    Layout("sharded and tensor parallel by 2", "plans", shard=2, tensor=2, changes=DIVISIBLE),
    Layout("replicated and sharded by 2", "plans", replicate=2, shard=2),
    *(
        Layout(f"{stages} stages, {name}", "stages", stages=stages, schedule=name, changes=layers)
        for stages, layers in ((2, {"num_hidden_layers": 3}), (4, {"num_hidden_layers": 5}))
        for name in ("GPipe", "1F1B")
    ),
    Layout("texts divided by 2", "context", parts=2, lengths=(16,) * 8),
    Layout("texts divided by 4", "context", parts=4, lengths=(16,) * 8),
)
by_name = {layout.name: layout for layout in LAYOUTS}

NOT_CAUSAL = "torch's context_parallel() and Trainer divide texts for causal attention alone"
NOT_SHIFTED = "Trainer divides texts with shift_labels, which the heads that predict words read"
WHY_NOT = {
    ("stages", "seq2seq"): "every layer of the second stack reads what the first wrote, which no "
    "stage of torch's schedules hands on: Stage() refuses it",
    ("context", "seq2seq"): NOT_CAUSAL,
    ("context", "encoder"): NOT_CAUSAL,
}
for family in ("decoder", "mixture"):
    WHY_NOT |= {
        ("context", f"{family}, texts"): "the last token, which decides, is in one process",
        ("context", f"{family}, tokens"): NOT_SHIFTED,
        ("context", f"{family}, answers"): "where an answer starts is counted in the whole text",
        ("context", f"{family}, body"): NOT_SHIFTED,
    }
CELLS = [(layout, name) for layout in LAYOUTS for name in heads.by_name]


def why_not(layout, name):
    """Why a head is not trained in a layout, in a sentence; None where it is."""
    family = heads.by_name[name].family.name
    return WHY_NOT.get((layout.way, family)) or WHY_NOT.get((layout.way, name))
