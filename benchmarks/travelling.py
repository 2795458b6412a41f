"""Our models as they travel: without the package, and so without what makes them fast at home.

A saved folder is plain modules. It should cost what a model of transformers costs.
"""

from dataclasses import replace

from hf_tformer import fast

from . import decoding, seq2seq
from .measure import OURS, Workload

WHERE = "as it travels"
LEAST = 0.97  # of transformers' own speed


def as_it_travels(prepare):
    """The same run, in which models call their modules and transformers decodes."""

    def prepared():
        run = prepare()

        def call(*arguments):
            with fast.disabled():
                return run.call(*arguments)

        return replace(run, call=call)

    return prepared


def travelling(settings):
    """Tasks of the other benchmarks, beside the default form of each peer alone."""
    for millions in (3, 19, 125):
        length = settings.pick(128 if millions < 100 else 32, 12)
        pair = decoding.llama_pair(settings, millions)
        inputs = decoding.prompt(pair, 1, settings.pick(16, 5), settings)
        yield beside_the_default(
            f"{millions}M parameters, {length} tokens", decoding.contestants(pair, inputs, length)
        )
    for workload in list(decoding.prefill(settings))[-1:]:
        yield beside_the_default(f"reading, {workload.label}", workload.contestants)
    for kind in seq2seq.KINDS:
        pair = seq2seq.pair_of(kind, settings)
        lengths = seq2seq.mixed_lengths(settings.pick(32, 3), settings.pick(32, 9))
        inputs, length = seq2seq.source(pair, lengths, settings), settings.pick(32, 6)
        yield beside_the_default(
            f"{kind}, batch {len(lengths)}, {length} tokens",
            seq2seq.contestants(pair, inputs, length, 1, settings),
        )


def beside_the_default(label, contestants):
    name = next(name for name in contestants if name != OURS)
    ours = as_it_travels(contestants[OURS])
    return Workload(f"{label}, {WHERE}", {OURS: ours, name: contestants[name]}, {name: LEAST})
