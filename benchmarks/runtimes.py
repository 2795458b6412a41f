"""Greedy decoding of the same weights in the runtimes that we export to.

A runtime that holds float32 generates our tokens, or nothing is timed. Rounded weights generate
tokens of their own: of those the number is compared. Every runtime has as many threads as torch.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TorchAoConfig

import hf_tformer
from conversion.engine.errors import ConversionError
from conversion.engine.side_files import own_tokenizer
from conversion.runtimes.exporting import export_to_runtime, library_of
from conversion.runtimes.generating import Graphs, InGenerate
from conversion.runtimes.registry import RUNTIMES
from conversion.runtimes.runtime import Runtime, Source, unpadded
from hf_tformer import fast

from .decoding import generation, llama_pair, prompt, varied
from .engines import library
from .measure import OURS, Absent, Contestants, Run, Settings, Workload, Workloads
from .peers import Inputs, Pair, copied
from .seq2seq import pair_of, sources

EXACT, ROUNDED = "float32", ("int8", "q8_0")
PLAIN = f"{OURS}, not compiled"
EIGHT_BITS = f"{OURS}, int8 by torchao"
WAYS = {
    f"{runtime.title}, {dtype}": (runtime, dtype)
    for runtime in RUNTIMES.values()
    for dtype in runtime.tolerance
    if dtype in (EXACT, *ROUNDED)
}
FLOOR = 0.9  # promised beside each that holds float32
LENGTHS = {3: 128, 19: 64, 125: 32}  # new tokens, by millions of parameters
FOLDER = "TFORMER_BENCHMARK_FILES"  # where a process that is weighed finds what was exported


def runtimes(settings: Settings) -> Workloads:
    """Time models that are open already; weigh a process that opens its files and decodes once."""
    for millions, length in LENGTHS.items():
        pair = llama_pair(settings, millions)
        yield from both_batches(f"{millions}M parameters", pair, length)
    yield from both_batches("encoder-decoder, 50M parameters", pair_of("marian", settings), 32)


def both_batches(what: str, pair: Pair, length: int) -> Workloads:
    length = pair.settings.pick(length, 6)
    floors = {name: FLOOR for name, (_, dtype) in WAYS.items() if dtype == EXACT}
    with kept_files() as folder:
        for rows in (1, pair.settings.pick(16, 3)):
            files = Files(folder, pair, prompt(pair, rows, pair.settings.pick(16, 5)), length)
            label = f"{what}, batch {rows}, {length} tokens"
            timed, steps = files.contestants(files.generating), label
            if rows == 1:  # where they are exported, ours are compiled
                steps, plain = f"{label}, our steps compiled", timed.pop(OURS)
                timed = {OURS: partial(with_compiled_steps, plain), PLAIN: plain, **timed}
            yield Workload(steps, timed, floors, apart=True)
            weighed = files.contestants(files.opening_and_generating)
            yield Workload(f"{label}, weights and all", weighed, measures=("MiB",))


def engine(settings: Settings) -> Workloads:
    """Translate with the same weights in CTranslate2, made of C++ with packed matrices."""
    rows, length = settings.pick((16, 48), (3, 6))
    pair = pair_of("marian", settings)
    inputs = sources(pair, rows, settings.pick(32, 9))
    with kept_files() as folder:
        for beams in (1, 4):
            files = Files(folder, pair, inputs, length, beams)
            yield Workload(
                f"{'greedy' if beams == 1 else f'{beams} beams'}, batch {rows}, {length} tokens",
                {
                    OURS: pair.contestant("ours", files.decoded),
                    "CTranslate2": partial(files.generating, RUNTIMES["ctranslate2"], EXACT),
                },
                {"CTranslate2": 0.85},
            )


@contextmanager
def kept_files() -> Iterator[Path]:
    """Keep exports, which take minutes, for the processes that time and weigh."""
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
    """Our model in a folder, its exports beside it, and the runs that decode with them."""

    def __init__(self, folder: Path, pair: Pair, inputs: Inputs, length: int, beams: int = 1):
        self.folder, self.pair, self.inputs = folder, pair, inputs
        self.length, self.beams = length, beams

    def contestants(self, prepare: Callable[[Runtime | None, str], Run]) -> Contestants:
        ways = {OURS: (None, EXACT), EIGHT_BITS: (None, "int8"), **WAYS}
        return {name: partial(prepare, *way) for name, way in ways.items()}

    def generating(self, runtime: Runtime | None, dtype: str) -> Run:
        return self.opened(runtime, self.files_of(runtime, dtype), dtype)

    def opening_and_generating(self, runtime: Runtime | None, dtype: str) -> Run:
        files = self.files_of(runtime, dtype)
        return Run(lambda: self.opened(runtime, files, dtype, as_read=True).call())

    def files_of(self, runtime: Runtime | None, dtype: str) -> Path:
        """Return the folder to open; a runtime that refuses or lacks a package is absent."""
        ours = self.folder / "ours"
        if not ours.exists():
            self.pair.ours.save_pretrained(ours)
            save_tokenizer(self.pair.sizes["vocab_size"], ours)
        if runtime is None:
            return ours
        return exported(ours, self.folder / f"{runtime.name}-{dtype}", runtime.name, dtype)

    def opened(
        self, runtime: Runtime | None, files: Path, dtype: str, as_read: bool = False
    ) -> Run:
        if runtime is not None:
            run = self.opened_by_runtime(runtime, files, dtype)
            return replace(run, is_rounded=dtype != EXACT)
        our_class = getattr(hf_tformer, library_of(self.folder / "ours").model_name)
        return self.by_torch(our_class, files, dtype, as_read)

    def by_torch(
        self, model_class: type[PreTrainedModel], files: Path, dtype: str, as_read: bool = False
    ) -> Run:
        """Decode with weights in memory, or `as_read`, in the pages of their file."""
        is_packed = dtype in ROUNDED
        options: dict[str, Any] = {"dtype": torch.bfloat16 if is_packed else getattr(torch, dtype)}
        if is_packed:
            int8 = library("torchao.quantization").Int8WeightOnlyConfig()
            options["quantization_config"] = TorchAoConfig(int8)
        model = model_class.from_pretrained(files, **options).eval()
        run = self.decoded(model if as_read or is_packed else copied(model))
        return replace(run, is_rounded=dtype != EXACT)

    def decoded(self, model: PreTrainedModel) -> Run:
        return generation(model, self.inputs, self.length, self.beams)

    def opened_by_runtime(self, runtime: Runtime, files: Path, dtype: str) -> Run:
        ours = self.folder / "ours"
        known = library_of(ours)
        origin = Source(ours, known, known.load_config(ours), dtype, own_tokenizer(ours)[0])
        running = runtime.open(origin, files)
        rows = unpadded(self.inputs)
        if len(rows) > 1 and not running.generates_batches:
            raise Absent("generates one sequence after the other")
        if isinstance(running, Graphs):
            return self.decoded(InGenerate(origin, running))
        # CTranslate2 alone translates sentences of several lengths in one batch.
        is_even = len({len(row) for row in rows}) == 1
        decode = running.generate if is_even else running.generate_batch
        call = partial(decode, rows, self.length, self.beams)
        return Run(call, lambda found: {"tokens": varied(torch.tensor(found))})


def with_compiled_steps(prepare: Callable[[], Run]) -> Run:
    """Only in a process of its own: any other model there would be compiled, too."""
    try:
        fast.enable(compiled=True)
    except RuntimeError as error:
        raise Absent(str(error)) from error
    return prepare()


def exported(ours: Path, files: Path, runtime: str, dtype: str) -> Path:
    """Return the folder of an export, made when it is first asked for."""
    if not files.exists():
        try:
            export_to_runtime(ours, files, runtime, dtype, verify=False)
        except ConversionError as error:
            raise Absent(str(error)) from error
    return files


def save_tokenizer(size: int, folder: Path) -> None:
    """Save a tokenizer, without which some runtimes take no model: bytes, and unused words."""
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
