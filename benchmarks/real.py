"""A released chat model, beside what people would run instead: its speed, its memory, its start.

Every library has as many threads as torch, and the files that we export: only llama.cpp opens the
file that was released, too. With `--quick`, a toy stands for the model.
"""

import inspect
import json
import logging
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedModel

import hf_tformer
from conversion.runtimes.registry import RUNTIMES

from .decoding import llama_pair, varied
from .engines import library
from .files import started
from .measure import OURS, Absent, Contestants, Run, Settings, Workload, Workloads
from .peers import Inputs, Pair
from .runtimes import (
    EXACT,
    FLOOR,
    PLAIN,
    Files,
    kept_files,
    save_tokenizer,
    with_compiled_steps,
)
from .weights import SMOLLM, released, smollm, toy

LLAMA, LLAMA_CPP, GENAI = "LlamaForCausalLM", "llama.cpp", "ONNX Runtime GenAI"
# What SmolLM2's chat template makes of a question; a toy takes it for text.
PROMPT = "<|im_start|>user\nTell me about Rome.<|im_end|>\n<|im_start|>assistant\n"


def chat(settings: Settings) -> Workloads:
    """Write an answer with weights of 32, 16, 8 and 4 bits, then from a cold start."""
    with kept_files() as folder:
        yield from writing(folder, settings)
        yield starting(Chat(folder, settings))


def writing(folder: Path, settings: Settings) -> Workloads:
    """Time models that are open already; weigh a process that opens its files and writes once."""
    for what, ways in WAYS.items():
        chat, weighed = (Chat(folder, settings, as_read) for as_read in (False, True))
        timed = ways(chat)
        if what in FLOORS:  # what is packed has other steps
            plain = timed[OURS]
            timed = {**timed, OURS: partial(with_compiled_steps, plain), PLAIN: plain}
        label = f"{SMOLLM} writes {chat.length} tokens, {what}"
        yield Workload(label, timed, FLOORS.get(what, {}), apart=True)
        opening = {name: partial(from_the_file, way) for name, way in ways(weighed).items()}
        yield Workload(f"{label}, weights and all", opening, measures=("MiB",))


def from_the_file(prepare: Callable[[], Run]) -> Run:
    """Return a run that opens a model and writes once; what is exported before it is kept."""
    return Run(lambda: prepare().call())


class Chat:
    """SmolLM2 as ours and as theirs, exported beside it, and the runs that answer a question."""

    def __init__(self, folder: Path, settings: Settings, as_read: bool = False):
        self.folder, self.settings, self.as_read = folder, settings, as_read
        self.length = settings.pick(64, 6)

    def in_float32(self) -> Contestants:
        return {
            OURS: partial(self.of_torch, "ours"),
            LLAMA: partial(self.of_torch, "theirs"),
            LLAMA_CPP: partial(self.of_runtime, "gguf"),
            GENAI: self.of_genai,
        }

    def in_bfloat16(self) -> Contestants:
        return {
            OURS: partial(self.of_torch, "ours", "bfloat16"),
            LLAMA: partial(self.of_torch, "theirs", "bfloat16"),
            LLAMA_CPP: partial(self.of_runtime, "gguf", "bfloat16"),
        }

    def in_few_bits(self) -> Contestants:
        return {
            OURS: partial(self.of_torch, "ours", "int8"),
            f"{LLAMA}, int8 by torchao": partial(self.of_torch, "theirs", "int8"),
            f"{LLAMA_CPP}, q8_0": partial(self.of_runtime, "gguf", "q8_0"),
            f"{LLAMA_CPP}, q4_1 as released": self.as_released,
            f"{GENAI}, 8 bits": partial(self.of_genai, 8),
            f"{GENAI}, 4 bits": partial(self.of_genai, 4),
        }

    @cached_property
    def place(self) -> Path:
        if self.settings.quick:
            pair = llama_pair(self.settings, 3)
            return toy(pair, save_tokenizer, self.folder)
        return smollm(self.folder)

    @cached_property
    def inputs(self) -> Inputs:
        return dict(AutoTokenizer.from_pretrained(self.place / "ours")(PROMPT, return_tensors="pt"))

    @cached_property
    def files(self) -> Files:
        return Files(self.place, Pair("llama", self.settings), self.inputs, self.length)

    def of_torch(self, side: str, dtype: str = EXACT) -> Run:
        model_class = hf_tformer.TformerDecoderForCausalLM if side == "ours" else LlamaForCausalLM
        folder = self.place / side
        if dtype == "bfloat16":  # people keep it in a folder of that dtype
            folder = saved_as(dtype, model_class, folder)
        return self.files.by_torch(model_class, folder, dtype, self.as_read)

    def of_runtime(self, name: str, dtype: str = EXACT) -> Run:
        return self.files.generating(RUNTIMES[name], dtype)

    def as_released(self) -> Run:
        if self.settings.quick:
            raise Absent("nobody has released the toy")
        link = self.place / "released" / "model.gguf"
        if not link.exists():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(released(SMOLLM, self.folder))
        return replace(self.files.opened(RUNTIMES["gguf"], link.parent, EXACT), is_rounded=True)

    def of_genai(self, bits: int = 32) -> Run:
        genai = library("onnxruntime_genai")
        files = self.files.files_of(RUNTIMES["onnx"], EXACT)
        model = opened_by_genai(genai, files if bits == 32 else packed(files, bits))
        ids = self.inputs["input_ids"][0].tolist()

        def outcome(found: list[int]) -> dict[str, torch.Tensor]:
            return {"tokens": varied(torch.tensor([found]))}

        written = partial(written_by_genai, genai, model, ids, self.length)
        return Run(written, outcome, is_rounded=bits != 32)


WAYS = {
    EXACT: Chat.in_float32,
    "bfloat16": Chat.in_bfloat16,
    "8 or 4 bits, ours of 8 by torchao": Chat.in_few_bits,
}
FLOORS = {EXACT: {LLAMA: 1.25, LLAMA_CPP: FLOOR}, "bfloat16": {LLAMA: 1.25}}


def saved_as(dtype: str, model_class: type[PreTrainedModel], folder: Path) -> Path:
    """Return a folder beside this one with the same weights in another dtype, made once."""
    place = folder.with_name(f"{folder.name}-{dtype}")
    if not place.exists():
        model_class.from_pretrained(folder, dtype=getattr(torch, dtype)).save_pretrained(place)
    return place


def opened_by_genai(genai: ModuleType, folder: Path) -> Any:
    """Open a folder with as many threads as torch has; by default it takes all cores."""
    config = genai.Config(str(folder))
    session = {"intra_op_num_threads": torch.get_num_threads()}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
    return genai.Model(config)


def written_by_genai(genai: Any, model: Any, ids: list[int], length: int) -> list[int]:
    options = genai.GeneratorParams(model)
    options.set_search_options(max_length=len(ids) + length, do_sample=False)
    generator = genai.Generator(model, options)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
    return list(generator.get_sequence(0)[len(ids) :])


def packed(folder: Path, bits: int) -> Path:
    """Pack the weights of products in an exported graph by ONNX Runtime's own quantiser."""
    place = folder.with_name(f"onnx-{bits}-bits")
    if not place.exists():
        packing = library("onnxruntime.quantization.matmul_nbits_quantizer")
        logging.disable(logging.INFO)  # a line for each node
        graph = with_constant_head(folder / "model.onnx")
        packer = packing.MatMulNBitsQuantizer(
            graph, bits=bits, block_size=32, is_symmetric=True, accuracy_level=4
        )
        packer.process()
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("model.onnx*"))
        packer.model.save_model_to_file(str(place / "model.onnx"), use_external_data_format=True)
    return place


def with_constant_head(file: Path) -> Any:
    """Read a graph whose head is a matrix of its own: as embeddings turned it is not packed."""
    ir, large = library("onnx_ir"), 2**40
    graph = ir.load(file)
    optimizer = library("onnxscript.optimizer")
    optimizer.fold_constants_ir(graph, input_size_limit=large, output_size_limit=large)
    for value in graph.graph.initializers.values():
        value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)  # not in a file
    return ir.to_proto(graph)


BY_TORCH = """
import sys
from transformers import AutoTokenizer
from {module} import {model_class}
folder, prompt, length = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = {model_class}.from_pretrained(folder).eval()
inputs = tokenizer(prompt, return_tensors="pt")
tokens = model.generate(**inputs, max_new_tokens=int(length), do_sample=False)[0]
print(tokenizer.decode(tokens[inputs["input_ids"].shape[1] :]))
"""
BY_LLAMA_CPP = """
import sys
from cyllama import LLM
file, prompt, length = sys.argv[1:]
print(LLM(file, max_tokens=int(length), temperature=0.0)(prompt))
"""
BY_GENAI = f"""
import sys
from typing import Any
import onnxruntime_genai
{inspect.getsource(written_by_genai)}
folder, prompt, length = sys.argv[1:]
model = onnxruntime_genai.Model(folder)
tokenizer = onnxruntime_genai.Tokenizer(model)
ids = list(tokenizer.encode(prompt))
print(tokenizer.decode(written_by_genai(onnxruntime_genai, model, ids, int(length))))
"""


def starting(chat: Chat) -> Workload:
    """Start a process that imports, opens the files in float32, reads a prompt and writes."""
    length = chat.settings.pick(16, 4)
    ours = BY_TORCH.format(module="hf_tformer", model_class="TformerDecoderForCausalLM")
    theirs = BY_TORCH.format(module="transformers", model_class=LLAMA)

    def exported(name: str) -> Path:
        return chat.files.files_of(RUNTIMES[name], EXACT)

    programs: dict[str, tuple[str, Callable[[], Path]]] = {
        OURS: (ours, lambda: chat.place / "ours"),
        LLAMA: (theirs, lambda: chat.place / "theirs"),
        LLAMA_CPP: (BY_LLAMA_CPP, lambda: exported("gguf") / "model.gguf"),
        GENAI: (BY_GENAI, lambda: exported("onnx")),
    }

    def process(name: str) -> Run:
        program, files = programs[name]
        return started([sys.executable, "-c", program, str(files()), PROMPT, str(length)])

    label = f"the first {length} tokens of a fresh process, {SMOLLM}"
    return Workload(label, {name: partial(process, name) for name in programs}, {LLAMA: 0.97})
