"""Find the configuration that a GGUF file describes: what `fields_of` writes, read backwards.

The values that llama.cpp fixes are those of the architecture's own configuration in transformers.
What is found is written again and compared with the file, so that nothing it says is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hf_tformer.model.layer_types import is_by_layer_type

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import Format
from ...engine.heads import FormatWithHeads
from ...engine.registry import FORMATS
from ...engine.rotations import SLOWED
from ...engine.translation import translate
from .architectures import ARCHITECTURES, FULL, SLIDING, Architecture
from .fields import fields_of
from .file import PLAIN_TYPES, GgufFile
from .reading_tokenizer import told_of
from .tensors import EXACT, extra_tensors
from .tokenizer import ENDS, ROLES

POOLING = "pooling_type"  # how programs make one vector of a text from an encoder's answers
NEAR = 1e-5  # of a number in float32
# Fields of ours that say which biases there are, by a tensor of the first layer that has one.
BIAS_TENSORS = {
    "attention_bias": ("attn_q.bias", "attn_qkv.bias"),
    "attention_output_bias": ("attn_output.bias",),
    "mlp_bias": ("ffn_down.bias",),
}
# Fields of a file that no model computes with, or that are read elsewhere.
UNUSED = (
    *("vocab_size", "rope.scaling.finetuned", "rope.scaling.attn_factor", "attention.causal"),
    *("attention.value_length", "tensor_data_layout", "rope.dimension_count"),
    *("attention.head_count_kv", "attention.key_length", "rope.freq_base", "context_length"),
    POOLING,
)


@dataclass(frozen=True)
class Described:
    """The model of a file: architecture, format, and both configurations."""

    architecture: Architecture
    format: Format
    ours: Config
    theirs: Config


def describe(file: GgufFile) -> Described:
    """Return the model of a file, or refuse it by what cannot be expressed."""
    kin = [one for one in ARCHITECTURES if one.name == file.architecture]
    if not kin:
        raise ConversionError(
            f"general.architecture is {file.architecture!r} in {file.path}, which is not read: "
            f"choose a file of {', '.join(sorted({one.name for one in ARCHITECTURES}))}"
        )
    refusals = []
    for architecture in kin:
        try:
            return described_as(file, architecture)
        except ConversionError as error:
            refusals.append(error)
    raise refusals[0]


def described_as(file: GgufFile, architecture: Architecture) -> Described:
    format = FORMATS[architecture.format]
    format = format.of_body() if isinstance(format, FormatWithHeads) else format
    assert isinstance(format, Format)
    told = with_defaults(file)
    usual = format.config_to_ours(
        format.theirs.config_class(num_hidden_layers=told["block_count"], vocab_size=2**20)
    )
    fields = {
        **usual,
        **sizes(told, usual),
        **from_tensors(file, architecture),
        **special_ids(file),
        **architecture.reads(told),
        **architecture.holds({name: file.shape(name) for name in file.packed}),
    }
    fields["rope_parameters"] = rotation(file, told, usual)
    ours = format.our_classes.make_config(without_unset(fields), dtype_of(file))
    ours.architectures = [format.our_classes.model_name]
    name = f"llama.cpp's {architecture.name}"
    compare(file, told, fields_of(ours, architecture, name))
    for refuse in architecture.refuses:
        refuse(ours, name)
    theirs = translate(ours, format, to_ours=False, dtype=None)
    compare_frequencies(file, theirs)
    return Described(architecture, format, ours, theirs)


def without_unset(fields: Fields) -> Fields:
    unset = {name for name in ("rope_parameters", "layer_types") if fields.get(name, 0) is None}
    return {name: value for name, value in fields.items() if name not in unset}


def with_defaults(file: GgufFile) -> Fields:
    """Return what a file says of its model, with what llama.cpp assumes where it says nothing."""
    told = file.described()
    needed = ("block_count", "embedding_length", "attention.head_count", "context_length")
    if missing := [name for name in needed if name not in told]:
        raise ConversionError(
            f"{file.architecture}.{missing[0]} is missing in {file.path}: fetch it again"
        )
    if lists := [name for name, value in told.items() if isinstance(value, list)]:
        raise ConversionError(
            f"{file.architecture}.{lists[0]} is {told[lists[0]]}, one number for each layer: only "
            "files whose layers have equal sizes convert"
        )
    heads = told["attention.head_count"]
    width = told.get("attention.key_length") or told["embedding_length"] // heads
    return {
        "attention.head_count_kv": heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "rope.dimension_count": width,
        "rope.freq_base": 10000.0,
        **told,
    }


def sizes(told: Fields, usual: Fields) -> Fields:
    is_rms = usual.get("norm_type", "rmsnorm").startswith("rms")
    ours, theirs = ("rms_norm", "layer_norm_rms") if is_rms else ("layer_norm", "layer_norm")
    found = {
        "max_position_embeddings": told["context_length"],
        "hidden_size": told["embedding_length"],
        "num_hidden_layers": told["block_count"],
        "intermediate_size": told.get("feed_forward_length"),
        "num_attention_heads": told["attention.head_count"],
        "num_key_value_heads": told["attention.head_count_kv"],
        "head_dim": told["attention.key_length"],
        f"{ours}_eps": told.get(f"attention.{theirs}_epsilon"),
    }
    return {name: value for name, value in found.items() if value is not None}


def from_tensors(file: GgufFile, architecture: Architecture) -> Fields:
    """Return what the tensors say: the vocabulary, tied embeddings, biases."""
    rows = file.shape("token_embd.weight")[0] if "token_embd.weight" in file.packed else 0
    found: Fields = {
        name: any(f"blk.0.{tensor}" in file.packed for tensor in tensors)
        for name, tensors in BIAS_TENSORS.items()
    }
    return {**found, "vocab_size": rows, "tie_word_embeddings": is_tied(file, architecture)}


def is_tied(file: GgufFile, architecture: Architecture) -> bool:
    """Return whether the head is the embeddings: a graph that needs a head has them twice."""
    if "output.weight" not in file.packed:
        return True
    head, table = (file.packed[name] for name in ("output.weight", "token_embd.weight"))
    is_same = head.data.shape == table.data.shape and bool((head.data == table.data).all())
    return architecture.needs_head and is_same and "output.bias" not in file.packed


def special_ids(file: GgufFile) -> Fields:
    """Return the ids of special tokens; a sequence may end at several of them."""
    told = told_of(file)
    if told.get("model") == "bert":  # whose beginning and end are [CLS] and [SEP]
        return {"pad_token_id": told["padding_token_id"]}
    ids = {name: told.get(ROLES[name]) for name in ("bos_token_id", "pad_token_id")}
    ends = map(told.get, ENDS)
    known = list(dict.fromkeys(end for end in ends if end is not None))
    return {**ids, "eos_token_id": known if len(known) > 1 else next(iter(known), None)}


def dtype_of(file: GgufFile) -> torch.dtype:
    """Return the dtype of the matrices if it holds the other tensors, too, and float32 if not."""
    matrices = {name for name, t in file.packed.items() if len(t.shape) > 1}
    matrices = {name for name in matrices if not name.endswith(EXACT)}
    kinds = {file.packed[name].tensor_type.name for name in matrices}
    dtype = PLAIN_TYPES.get(kinds.pop(), torch.float32) if len(kinds) == 1 else torch.float32
    others = (file.read(name) for name in file.packed if name not in matrices)
    is_exact = all(torch.equal(tensor.to(dtype).float(), tensor.float()) for tensor in others)
    return dtype if is_exact else torch.float32


def rotation(file: GgufFile, told: Fields, usual: Fields) -> Any:
    """Return the rope_parameters of ours, by kind of layer where the architecture has them so."""
    rope = usual.get("rope_parameters")
    if not rope:
        return rope
    part = told["rope.dimension_count"] / told["attention.key_length"]
    share = {} if part == 1 else {"partial_rotary_factor": part}
    full = {"rope_theta": told["rope.freq_base"], **share, **scaling(file, told)}
    if not is_by_layer_type(rope):
        return full
    theta = told.get("rope.freq_base_swa", rope.get(SLIDING, full)["rope_theta"])
    windows = {"rope_type": "default", "rope_theta": theta, **share}
    return {kind: full if kind == FULL else windows for kind in rope}


def scaling(file: GgufFile, told: Fields) -> Fields:
    if "rope_freqs.weight" in file.packed:
        factor = float(file.read("rope_freqs.weight").max())
        return {"rope_type": "llama3", "factor": factor, **SLOWED}
    kind = told.get("rope.scaling.type", "none")
    if kind not in SCALINGS:
        raise ConversionError(
            f"rope.scaling.type is {kind!r} in {file.path}, which is not read: only "
            f"{', '.join(SCALINGS)} convert"
        )
    return SCALINGS[kind](told)


def yarn(told: Fields) -> Fields:
    betas = {name: told.get(f"rope.scaling.yarn_{name}") for name in ("beta_fast", "beta_slow")}
    return {
        "rope_type": "yarn",
        "factor": told["rope.scaling.factor"],
        "original_max_position_embeddings": told["rope.scaling.original_context_length"],
        **{name: value for name, value in betas.items() if value is not None},
    }


SCALINGS: dict[str, Callable[[Fields], Fields]] = {
    "none": lambda told: {"rope_type": "default"},
    "linear": lambda told: {"rope_type": "linear", "factor": told["rope.scaling.factor"]},
    "yarn": yarn,
}


def compare(file: GgufFile, told: Fields, written: Fields) -> None:
    """Refuse a file that says something else than what the model found would write."""
    window = told.get("attention.sliding_window", 0)
    unused = {*UNUSED, *(("attention.sliding_window",) if window >= told["context_length"] else ())}
    if "attention.layer_norm_rms_epsilon" in written:  # files of T5 hold the other name as well
        unused.add("attention.layer_norm_epsilon")
    for name, value in told.items():
        if name in written and name != "vocab_size" and not are_near(value, written[name]):
            why = f"where llama.cpp computes with {written[name]}"
        elif name not in written and name not in unused and value:
            why = "which is not read"
        else:
            continue
        raise ConversionError(
            f"{file.architecture}.{name} is {value} in {file.path}, {why}: this model cannot be "
            "expressed"
        )


def are_near(first: Any, second: Any) -> bool:
    if isinstance(first, float) or isinstance(second, float):
        return abs(first - second) <= NEAR * max(abs(first), abs(second))
    return bool(first == second)


def compare_frequencies(file: GgufFile, theirs: Config) -> None:
    """Refuse frequencies that are lowered in another way than in Llama 3.1 to 3.3."""
    for name, factors in extra_tensors(theirs):
        if not torch.allclose(factors.float(), file.read(name).float(), rtol=NEAR * 10):
            raise ConversionError(
                f"{name} in {file.path} lowers frequencies in another way than Llama 3.1, whose "
                "low_freq_factor is 1, high_freq_factor 4 and original length 8192: this model "
                "cannot be expressed"
            )
