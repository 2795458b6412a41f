"""Greedy texts of the same weights in the runtimes that we export to.

A runtime that holds float32 writes our tokens, or nothing is timed. Rounded weights write tokens of
their own: of those the number is compared. Every runtime has as many threads as torch.
"""

import os
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TorchAoConfig

from conversion.engine.errors import ConversionError
from conversion.engine.side_files import own_tokenizer
from conversion.runtimes.exporting import export_to_runtime, library_of
from conversion.runtimes.generating import Graphs, InGenerate
from conversion.runtimes.registry import RUNTIMES
from conversion.runtimes.runtime import Source
from hf_tformer import fast

from .decoding import generation, llama_pair, prompt, varied
from .engines import library
from .measure import OURS, Absent, Run, Workload
from .peers import OUR_CLASSES
from .seq2seq import pair_of, source, translating

EXACT, ROUNDED = "float32", ("int8", "q8_0")
PLAIN = f"{OURS}, not compiled"
EIGHT_BITS = f"{OURS}, int8 by torchao"
WAYS = [
    (runtime, dtype)
    for runtime in RUNTIMES.values()
    for dtype in runtime.tolerance
    if dtype in (EXACT, *ROUNDED)
]
FLOOR = 0.9  # promised beside each that holds float32
LENGTHS = {3: 128, 19: 64, 125: 32}  # new tokens, by millions of parameters
FOLDER = "TFORMER_BENCHMARK_FILES"  # where a process that weighs finds what was exported


def runtimes(settings):
    """What is timed is open already; what is weighed opens its files, and writes once."""
    for millions, length in LENGTHS.items():
        pair = llama_pair(settings, millions)
        yield from both_batches(f"{millions}M parameters", pair, length, prompt_of, settings)
    pair = pair_of("marian", settings)
    yield from both_batches("encoder-decoder, 50M parameters", pair, 32, sentence_of, settings)


def prompt_of(pair, texts, settings):
    return prompt(pair, texts, settings.pick(16, 5), settings), generation


def sentence_of(pair, texts, settings):
    ids = source(pair, [settings.pick(16, 5)] * texts, settings)
    return ids, partial(translating, beams=1)


def both_batches(what, pair, length, inputs_of, settings):
    length = settings.pick(length, 6)
    with kept_files() as folder:
        for texts in (1, settings.pick(16, 3)):
            inputs, write = inputs_of(pair, texts, settings)
            files = Files(folder, pair, inputs, length, write)
            label = f"{what}, batch {texts}, {length} tokens"
            floors = {name_of(*way): FLOOR for way in WAYS if way[1] == EXACT}
            written = files.contestants(files.written)
            steps = label
            if texts == 1:  # where they are exported, we are compiled
                steps, plain = f"{label}, our steps compiled", written.pop(OURS)
                written = {OURS: files.written_by_compiled_steps, PLAIN: plain, **written}
            yield Workload(steps, written, floors, apart=True)
            opened = files.contestants(files.opened_and_written)
            yield Workload(f"{label}, weights and all", opened, measures=("MiB",))


def name_of(runtime, dtype):
    return f"{runtime.title}, {dtype}"


@contextmanager
def kept_files():
    """Exports take minutes: the processes that weigh find those of the one that started them."""
    if FOLDER in os.environ:
        yield Path(os.environ[FOLDER])
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ[FOLDER]


class Files:
    """Our model in a folder, its exports beside it, and who writes from them."""

    def __init__(self, folder, pair, inputs, length, write):
        self.folder, self.pair, self.inputs, self.length = folder, pair, inputs, length
        self.write = partial(write, inputs=inputs, length=length)

    def contestants(self, prepare):
        ways = {name_of(*way): partial(prepare, *way) for way in WAYS}
        ours = {OURS: partial(prepare, None, EXACT), EIGHT_BITS: partial(prepare, None, "int8")}
        return {**ours, **ways}

    def written(self, runtime, dtype):
        return self.opened(runtime, self.files_of(runtime, dtype), dtype)

    def written_by_compiled_steps(self):
        """In a process of its own: whoever else writes there would be compiled, too."""
        try:
            fast.enable(compiled=True)
        except RuntimeError as error:
            raise Absent(str(error)) from error
        return self.written(None, EXACT)

    def opened_and_written(self, runtime, dtype):
        files = self.files_of(runtime, dtype)
        return Run(lambda: self.opened(runtime, files, dtype).call())

    def files_of(self, runtime, dtype):
        """Where the files lie; what a runtime refuses, or lacks to be run, is no contestant."""
        ours = self.folder / "ours"
        if not ours.exists():
            self.pair.ours.save_pretrained(ours)
            save_tokenizer(self.pair.sizes["vocab_size"], ours)
        if runtime is None:
            return ours
        files = self.folder / f"{runtime.name}-{dtype}"
        if not files.exists():
            try:
                export_to_runtime(ours, files, runtime.name, dtype, verify=False)
            except ConversionError as error:
                raise Absent(str(error)) from error
        return files

    def opened(self, runtime, files, dtype):
        known = library_of(self.folder / "ours")
        if runtime is None:
            run = self.opened_by_us(OUR_CLASSES[known.model_name], files, dtype)
        else:
            run = self.opened_by_runtime(runtime, known, files, dtype)
        run.is_rounded = dtype in ROUNDED
        return run

    def opened_by_runtime(self, runtime, known, files, dtype):
        config = known.load_config(self.folder / "ours")
        origin = Source(self.folder / "ours", known, config, dtype, own_tokenizer(files)[0])
        running = runtime.open(origin, files)
        if len(self.inputs["input_ids"]) > 1 and not running.generates_batches:
            raise Absent("writes one text after the other")
        if isinstance(running, Graphs):
            return self.write(InGenerate(origin, running))
        return self.by_itself(running)

    def opened_by_us(self, model_class, files, dtype):
        if dtype == EXACT:
            return self.write(self.pair.place(model_class.from_pretrained(files)))
        rounded = TorchAoConfig(library("torchao.quantization").Int8WeightOnlyConfig())
        options = {"dtype": torch.bfloat16, "quantization_config": rounded}
        return self.write(model_class.from_pretrained(files, **options).eval())

    def by_itself(self, running):
        rows = self.inputs["input_ids"].tolist()
        call = partial(running.generate, rows, self.length, 1)
        return Run(call, lambda texts: {"tokens": varied(torch.tensor(texts))})


def save_tokenizer(size, folder):
    """Some runtimes take no model without one: bytes, and words that no text has."""
    special = ["<pad>", "<s>", "</s>"]
    tokens = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    tokens += [f"word{i}" for i in range(len(tokens), size)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
