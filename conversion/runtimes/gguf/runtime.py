"""llama.cpp as a runtime, with GGUF files."""

import contextlib
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from ...engine.aliases import Fields
from ...engine.errors import ConversionError
from ...engine.models import LoadedModel
from ..proof import first_place
from ..runtime import Running, Runtime, Source
from .expressing import express
from .modelfile import modelfile
from .packing import FEW_BITS, pack
from .pre_tokenizers import TEXT
from .running import LlamaCpp
from .tensors import refuse_rows, write_tensors
from .tokenizer import tokenizer_fields

FILE = "model.gguf"
FILE_TYPES = {"float32": 0, "float16": 1, "q8_0": 7, "bfloat16": 32}  # llama.cpp's numbers
EXACT_ACTS = ("silu", "swish", "relu", "relu2")
TABLE = 5e-3  # of the largest logit: the allowed difference from its table of activations

PROGRAM = """\
from cyllama import LLM  # or: llama-cli -m {path}; ollama create {name} -f {name}/Modelfile

llm = LLM("{path}", max_tokens=20)
print(llm("Once upon a time"))"""
EMBEDDING_PROGRAM = """\
from cyllama.rag import Embedder  # or: llama-embedding -m {path} -p "some text"

embedder = Embedder("{path}")
print(embedder.embed("some text"))"""


def has_a_table(config: PreTrainedConfig) -> bool:
    return config.hidden_act not in EXACT_ACTS


def round_input(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
    return rounded(inputs[0])


def round_output(
    _: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor
) -> torch.Tensor:
    return rounded(output)


def approximate(
    _: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor
) -> torch.Tensor:
    """Compute GELU by tanh, from which llama.cpp's tables of GELU are made."""
    return rounded(torch.nn.functional.gelu(inputs[0], approximate="tanh"))


def rounded(states: torch.Tensor) -> torch.Tensor:
    """Round to float16 as in a table that ends at ten."""
    return states.half().to(states.dtype).where(states.abs() < 10, states)


class Gguf(Runtime):
    name = "gguf"
    title = "llama.cpp"
    packages = ("gguf", "cyllama")
    extra = "gguf"
    library_name = "gguf"
    # Products with rounded weights round their inputs as well; random models differ most. A part
    # of the file at a wrong place differs by 1.
    # Fewer bits are packed after the proof, which is one of float32.
    tolerance = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-1, "q8_0": 4e-1}
    tolerance |= dict.fromkeys(FEW_BITS, tolerance["float32"])
    beams = (1,)

    def load_model(self, source: Source) -> LoadedModel:
        """Load our model with one kind of segment, as llama.cpp has no other."""
        return replace(source.load_model(), types=0)

    def tolerance_for(self, source: Source) -> float:
        """Return the tolerance, which is larger where activations come from a table."""
        return max(super().tolerance_for(source), TABLE if has_a_table(source.config) else 0)

    def imitate(self, model: PreTrainedModel) -> list[RemovableHandle]:
        """Add hooks that round activations like GELU as llama.cpp's table of float16 does."""
        if not has_a_table(model.config):
            return []
        activations = [part for name, part in model.named_modules() if name.endswith("mlp.act_fn")]
        look_up = approximate if model.config.hidden_act == "gelu" else round_output
        return [
            *(part.register_forward_pre_hook(round_input) for part in activations),
            *(part.register_forward_hook(look_up) for part in activations),
        ]

    def refuse(self, source: Source) -> None:
        source.refuse_experts(self.title)
        express(source)
        refuse_rows(source)
        tokenizer_of(source)

    def write(self, source: Source, folder: Path) -> None:
        import gguf

        if source.dtype in FEW_BITS:
            source = replace(source, dtype="float32")  # until it is proven and packed
        model, ends = express(source), end_tokens(source)
        with contextlib.closing(gguf.GGUFWriter(folder / FILE, model.architecture.name)) as writer:
            writer.add_name(source.folder.resolve().name)
            writer.add_file_type(FILE_TYPES[source.dtype])
            writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
            for name, value in {
                **{f"{model.architecture.name}.{name}": x for name, x in model.fields.items()},
                **tokenizer_of(source),
            }.items():
                add(writer, name, value)
            write_tensors(writer, source, model)
        if source.generates and not source.config.is_encoder_decoder:  # Ollama runs no others
            longest = source.config.max_position_embeddings
            text = modelfile(FILE, source.tokenizer, longest, ends)
            (folder / "Modelfile").write_text(text, encoding="utf-8")

    def open(self, source: Source, folder: Path) -> Running:
        running = LlamaCpp(folder / FILE, source)
        refuse_other_ids(source.tokenizer, running)
        return running

    def pack(self, source: Source, folder: Path) -> bool:
        """Pack the weights in few bits, where these are asked for."""
        if source.dtype not in FEW_BITS:
            return False
        pack(folder / FILE, source.dtype)
        return True

    def program(self, source: Source, name: str) -> str:
        program = EMBEDDING_PROGRAM if source.library.is_encoder else PROGRAM
        return program.format(name=name, path=f"{name}/{FILE}")


def tokenizer_of(source: Source) -> Fields:
    fields = tokenizer_fields(source.tokenizer, source.config.vocab_size, end_tokens(source))
    if source.library.is_encoder:
        fields["ggml.token_type_count"] = max(1, source.config.type_vocab_size)
    return {f"tokenizer.{name}": value for name, value in fields.items()}


def end_tokens(source: Source) -> list[int]:
    """Return the tokens that end a sequence; without any, llama.cpp would choose one itself."""
    config: PreTrainedConfig | GenerationConfig = source.config
    if (source.folder / "generation_config.json").is_file():
        config = GenerationConfig.from_pretrained(source.folder)
    ends = config.eos_token_id
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if source.generates and not ends:
        raise ConversionError(
            "eos_token_id is None, and llama.cpp would end sequences at another token: set it in "
            "generation_config.json"
        )
    return ends


def add(writer: Any, name: str, value: object) -> None:
    """Add a field of the type that its value has in Python; integers are never negative."""
    ways = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
        bytes: writer.add_array,
    }
    ways[type(value)](name, value)


def refuse_other_ids(tokenizer: Any, running: LlamaCpp) -> None:
    text = TEXT
    if tokenizer.backend_tokenizer.model.__class__.__name__ == "WordPiece":
        # Its WordPiece supports the combining marks of European letters alone.
        text = " ".join(word for word in TEXT.split() if not has_marks(word))
    expected, actual = tokenizer(text)["input_ids"], running.ids(text)
    if actual != expected:
        place = first_place(actual, expected)
        near = tokenizer.decode(expected[max(0, place - 3) : place + 3])
        raise ConversionError(
            f"llama.cpp has other ids for a text than this tokenizer, first near {near!r}: "
            f"{actual[place : place + 3]} instead of {expected[place : place + 3]}; nothing is "
            "kept, please report this tokenizer"
        )


def has_marks(word: str) -> bool:
    return any(unicodedata.category(c) == "Mn" or "\uac00" <= c <= "\ud7a3" for c in word)
