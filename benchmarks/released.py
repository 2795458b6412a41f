"""Greedy decoding with layers in the shapes of released models, beside their own classes.

Widths, heads, norms, windows, caps and rotations are those that were released; layers and words are
fewer, so that two such models fit a small machine.
"""

from typing import Any

import torch

from .decoding import SPECIAL, generation, generation_in_half, prompt
from .measure import Settings, Workload, Workloads
from .peers import Pair

FLOOR = 1.25
# Number format, what is run, and how far its outcomes may differ.
FORMATS = (("float32", generation, 1e-3), ("bfloat16", generation_in_half, 1.0))
FEWER = {"num_hidden_layers": 4, "vocab_size": 16000}
NAMES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
# Model → (format, the four sizes, what else is not a default of its configuration)
RELEASED: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "Gemma 2, 2B": ("gemma2", (2304, 9216, 8, 4), {"head_dim": 256}),
    "Gemma 3, 1B": ("gemma3_text", (1152, 6912, 4, 1), {"head_dim": 256, "sliding_window": 512}),
    "OLMo 2, 1B": ("olmo2", (2048, 8192, 16, 16), {}),
    "SmolLM3, 3B": ("smollm3", (2048, 11008, 16, 4), {}),
    "Phi-2": ("phi", (2560, 10240, 32, 32), {"partial_rotary_factor": 0.4}),
    "Pythia, 410M": ("gpt_neox", (1024, 4096, 16), {"rotary_pct": 0.25}),
}
TOY, TOY_FIELDS = (48, 64, 6, 2), {"num_hidden_layers": 4, "vocab_size": 997}


def released(settings: Settings) -> Workloads:
    for dtype, run, tolerance in FORMATS:
        for name, (kind, sizes, others) in RELEASED.items():
            sizes, fields = settings.pick((sizes, FEWER | others), (TOY[: len(sizes)], TOY_FIELDS))
            pair = Pair(
                kind, settings, **dict(zip(NAMES, sizes, strict=False)), **fields, **SPECIAL
            )
            pair.dtype = getattr(torch, dtype)
            length = settings.pick(32, 6)
            yield Workload(
                f"{name}, {dtype}, batch 1, {length} tokens",
                pair.contestants(run, prompt(pair, 1, settings.pick(16, 5)), length),
                {pair.name: FLOOR},
                tolerance=tolerance,
            )
