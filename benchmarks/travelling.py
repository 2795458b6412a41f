"""Our models as checkpoint folders open without the package: nothing of its fast path.

A saved folder holds plain modules. It should cost what a model of transformers costs.
"""

from collections.abc import Callable

from hf_tformer import fast

from . import decoding, seq2seq
from .measure import OURS, Contestants, Run, Settings, Workload, Workloads

WHERE = "without the package"
LEAST = 0.97  # of transformers' own speed


def without_package(prepare: Callable[[], Run]) -> Callable[[], Run]:
    """Prepare the same run with eager modules, decoded by transformers."""
    return lambda: prepare().within(fast.disabled)


def travelling(settings: Settings) -> Workloads:
    """Repeat tasks of the other benchmarks, beside each peer as it comes."""
    for millions in (3, 19, 125):
        length = settings.pick(128 if millions < 100 else 32, 12)
        pair = decoding.llama_pair(settings, millions)
        inputs = decoding.prompt(pair, 1, settings.pick(16, 5))
        yield beside_the_default(
            f"{millions}M parameters, {length} tokens", decoding.contestants(pair, inputs, length)
        )
    *_, prefill = decoding.prefill(settings)
    yield beside_the_default(f"prefill, {prefill.label}", prefill.contestants)
    for kind in seq2seq.KINDS:
        pair = seq2seq.pair_of(kind, settings)
        rows, length = settings.pick((32, 32), (3, 6))
        inputs = seq2seq.sources(pair, rows, settings.pick(32, 9))
        yield beside_the_default(
            f"{kind}, batch {rows}, {length} tokens", decoding.contestants(pair, inputs, length)
        )


def beside_the_default(label: str, contestants: Contestants) -> Workload:
    name = next(name for name in contestants if name != OURS)
    ours = without_package(contestants[OURS])
    return Workload(f"{label}, {WHERE}", {OURS: ours, name: contestants[name]}, {name: LEAST})
