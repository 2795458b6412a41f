"""Every benchmark: its name, its title, and the function that lists its tasks."""

from collections.abc import Callable
from dataclasses import dataclass

from . import (
    assisted,
    attention,
    decoding,
    encoders,
    files,
    growth,
    real,
    real_sentences,
    released,
    runtimes,
    scale,
    seq2seq,
    surroundings,
    training,
    training_sizes,
    travelling,
)
from .measure import Settings, Workloads


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str
    workloads: Callable[[Settings], Workloads]
    others: float = 0.0  # of each of its tasks: see Workload


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("greedy", "Greedy decoding, batch 1", decoding.greedy),
        Benchmark("half", "Greedy decoding in half precision", decoding.greedy_half),
        Benchmark(
            "released", "Greedy decoding in the shapes of released models", released.released
        ),
        Benchmark("surroundings", "Idle, loaded, and with other cores", surroundings.surroundings),
        Benchmark("travelling", "Without the package", travelling.travelling),
        Benchmark("gpt2", "Greedy decoding, batch 1, GPT-2", decoding.greedy_gpt2),
        Benchmark("mixtures", "Greedy decoding with experts, batch 1", decoding.mixtures),
        Benchmark("padded-batch", "Decoding a left-padded batch", decoding.padded_batch, 1 / 16),
        Benchmark("prompt-beams", "Four beams after a prompt", decoding.beams),
        Benchmark("assisted", "Guessed tokens, on a released model", assisted.assisted),
        Benchmark("chat", "Answering, by a released model", real.chat),
        Benchmark("prefill", "Prefill", decoding.prefill),
        Benchmark("no-cache", "A cache against the naive loop", decoding.no_cache),
        Benchmark("training", "A training step", training.training),
        Benchmark(
            "training-sizes",
            "Training steps of other sizes and families",
            training_sizes.training_sizes,
        ),
        Benchmark("scale", "Training on two processes", scale.scale),
        Benchmark("loss", "Projection and cross entropy", training.loss),
        Benchmark("attention", "Our fast attention beside our eager one", attention.attention),
        Benchmark("choice", "The default backend beside every other", attention.choice),
        Benchmark("growth", "Time and memory, as sequences grow", growth.growth),
        Benchmark("loading", "Opening a model, importing the package", files.loading),
        Benchmark("conversion", "Converting a checkpoint", files.conversion),
        Benchmark("seq2seq", "Translating, greedily", seq2seq.seq2seq),
        Benchmark("beams", "Translating, four beams", seq2seq.beams),
        Benchmark("t5", "Generating with T5", seq2seq.t5),
        Benchmark("corpus", "Translating a corpus", seq2seq.corpus, 1 / 16),
        Benchmark("engine", "Translating, beside an engine in C++", runtimes.engine),
        Benchmark("engines", "Generating in the runtimes that we export to", runtimes.runtimes),
        Benchmark("encoder", "Encoding, in inference", seq2seq.encoder),
        Benchmark("encoder-only", "Encoding a padded batch", encoders.encoder_only),
        Benchmark("sentences", "Vectors of sentences", encoders.sentences),
        Benchmark("vectors", "Vectors of sentences, by released models", real_sentences.vectors),
        Benchmark("windows", "An encoder's windows, as sequences grow", encoders.windows),
    )
}
