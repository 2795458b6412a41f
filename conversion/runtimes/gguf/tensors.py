"""The tensors of a GGUF file, in llama.cpp's layout and with its names."""

from collections.abc import Callable
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ...engine.aliases import Config, NamedTensors
from ...engine.convert import converted_tensors, rounded
from ...engine.errors import ConversionError
from ...engine.request import Request
from ...engine.rules import SavedTensors, plan
from ...engine.transforms import SAME, Transform
from ..runtime import Source
from .architectures import Architecture
from .expressing import Expressed
from .file import PLAIN_TYPES

TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}
BLOCK = 32  # numbers of a row that share a scale where they are packed
# Tensors that llama.cpp reads in float32 alone, as it does vectors.
EXACT = ("position_embd.weight", "token_types.weight", "attn_rel_b.weight")


def refuse_rows(source: Source) -> None:
    """Refuse rows that cannot be packed in whole blocks."""
    ours = source.config
    rows = {
        "hidden_size": ours.hidden_size,
        "intermediate_size": ours.intermediate_size,
        "num_attention_heads * head_dim": ours.num_attention_heads * ours.head_dim,
    }
    for name, size in rows.items():
        if TYPES.get(source.dtype) not in PLAIN_TYPES and size % BLOCK:
            raise ConversionError(
                f"{name} is {size}, but {source.dtype} stores rows of whole blocks of {BLOCK}: "
                "choose float16 or bfloat16"
            )


def write_tensors(writer: Any, source: Source, model: Expressed) -> None:
    """Write the header of all tensors, then the tensors one at a time."""
    theirs = model.format.theirs.build(model.theirs)
    ours = source.library.build(source.config)
    rules = model.format.table(model.theirs)
    steps = plan(rules, SavedTensors.of(ours).shapes)
    shapes = SavedTensors.of(theirs).shapes
    names = [name for step in steps for name in step.targets(to_ours=False)]
    meta = ((name, torch.empty(shapes[name], device="meta")) for name in names)
    kinds = {}
    for name, tensor in laid_out(meta, model, source):
        kinds[name] = kind = type_of(name, tensor, source.dtype)
        writer.add_tensor_info(name, tensor.shape, float, size_of(tensor, kind), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    request = Request(source.folder, source.folder, model.format, "export")
    checkpoint = source.library.checkpoint(source.folder)
    tensors, _, _ = converted_tensors(request, rules, checkpoint, ours, theirs)
    for name, tensor in laid_out(tensors, model, source):
        writer.write_tensor_data(numbers(name, tensor, kinds[name]))
        del tensor  # before the next one is read


def laid_out(tensors: NamedTensors, model: Expressed, source: Source) -> NamedTensors:
    """Yield tensors in llama.cpp's layout and with its names."""
    architecture, ours = model.architecture, source.config
    named_there = names_in_llama_cpp(architecture, ours)
    yield from extra_tensors(model.theirs)
    for name, tensor in tensors:
        (tensor,) = layout_of(name, architecture).inverse((tensor,), ours)
        named = named_there(name)
        if named is None:
            raise ConversionError(f"{name} has no name in llama.cpp's {architecture.name}")
        yield named, tensor
        if named == "token_embd.weight" and architecture.needs_head and ours.tie_word_embeddings:
            yield "output.weight", tensor
        del tensor


def names_in_llama_cpp(architecture: Architecture, ours: Config) -> Callable[[str], str | None]:
    """Return the function from their name of a tensor to llama.cpp's; None for one without."""
    import gguf

    number = next(i for i, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
    layers = max(ours.num_hidden_layers, getattr(ours, "decoder_layers", 0))
    names = gguf.get_tensor_name_map(number, layers)

    def named_there(name: str) -> str | None:
        bare = name.removeprefix("transformer.")  # as BLOOM's base model is saved
        found = (names.get_name(n, try_suffixes=(".weight", ".bias")) for n in (name, bare))
        return next(filter(None, found), None)

    return named_there


def layout_of(name: str, architecture: Architecture) -> Transform:
    """Return the transform of a tensor of theirs, whose `inverse` makes llama.cpp's."""
    changes = architecture.layout.items()
    return next((change for end, change in changes if name.endswith(end)), SAME)


def extra_tensors(theirs: Config) -> NamedTensors:
    """Yield the factors by which llama3 lowers frequencies, which no model stores."""
    rope = getattr(theirs, "rope_parameters", None) or {}
    if rope.get("rope_type") == "llama3":
        plain, _ = ROPE_INIT_FUNCTIONS["linear"](theirs, "cpu")
        slowed, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs, "cpu")
        yield "rope_freqs.weight", plain * rope["factor"] / slowed


def type_of(name: str, tensor: torch.Tensor, dtype: str) -> Any:
    import gguf

    exact = tensor.ndim == 1 or name.endswith(EXACT)
    return gguf.GGMLQuantizationType["F32" if exact else TYPES[dtype]]


def size_of(tensor: torch.Tensor, kind: Any) -> int:
    import gguf

    block, size = gguf.GGML_QUANT_SIZES[kind]
    return tensor.numel() // block * size


def numbers(name: str, tensor: torch.Tensor, kind: Any) -> Any:
    """Return the numbers of a tensor as an array of a GGML type."""
    import gguf

    if kind.name in ("F16", "BF16"):
        dtype = torch.float16 if kind.name == "F16" else torch.bfloat16
        [(_, tensor)] = rounded([(name, tensor)], dtype)
        return tensor.contiguous().view(torch.int16).numpy()
    return gguf.quants.quantize(tensor.float().contiguous().numpy(), kind)
