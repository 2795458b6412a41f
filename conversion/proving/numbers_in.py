"""Whether the files of a runtime hold float32, halves, or numbers of few bits."""

import struct
from collections.abc import Callable, Iterable, Iterator
from os import SEEK_CUR
from pathlib import Path

from ..runtimes.proof import EXACT

FLOAT32, HALF, BFLOAT16 = "float32", "float16", "bfloat16"
EIGHT, FOUR = "eight bits", "four bits"
TOLERANCES = {FLOAT32: EXACT, HALF: 2e-2, BFLOAT16: 1e-1, EIGHT: 1e-2, FOUR: 1e-2}  # of logits
KINDS = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # CTranslate2's numbers
FOUR_BITS, EIGHT_BITS = (
    {"int4", "uint4", "i4", "u4", "nf4", "int32"},
    {"int8", "uint8", "i8", "u8", "int16"},
)


def kind_in(runtime: str, folder: Path) -> str:
    """Return the smallest kind of number of which the files have many."""
    kinds = READERS[runtime](folder) if runtime in READERS else ()
    widths = {kind.lower() for kind in kinds}
    if widths & FOUR_BITS:
        return FOUR
    if widths & EIGHT_BITS:
        return EIGHT
    if widths & {"bfloat16", "bf16"}:
        return BFLOAT16
    return HALF if widths & {"float16", "f16"} else FLOAT32


def in_onnx(folder: Path) -> Iterable[str]:
    import onnx

    for path in folder.glob("*.onnx"):
        graph = onnx.load(path, load_external_data=False).graph
        matrices = (one for one in graph.initializer if len(one.dims) > 1)
        yield from {onnx.TensorProto.DataType.Name(one.data_type) for one in matrices}


def in_openvino(folder: Path) -> Iterable[str]:
    import openvino

    for path in folder.glob("openvino_*model.xml"):
        nodes = openvino.Core().read_model(path).get_ops()
        constants = [one for one in nodes if one.get_type_name() == "Constant"]
        matrices = [one for one in constants if len(one.get_output_shape(0)) > 1]
        yield from {one.get_element_type().get_type_name() for one in matrices}


def in_ctranslate2(folder: Path) -> Iterator[str]:
    """Yield the kind of each matrix in model.bin, by the description before its numbers."""
    with (folder / "model.bin").open("rb") as file:

        def number(kind: str) -> int:
            return struct.unpack(f"<{kind}", file.read(struct.calcsize(kind)))[0]

        number("I")  # the version
        file.seek(number("H"), SEEK_CUR)  # the class of the model
        number("I")  # its revision
        for _ in range(number("I")):
            file.seek(number("H"), SEEK_CUR)  # a name
            sizes = [number("I") for _ in range(number("B"))]
            kind, size = number("B"), number("I")
            file.seek(size, SEEK_CUR)
            if len(sizes) > 1:
                yield KINDS[kind]


READERS: dict[str, Callable[[Path], Iterable[str]]] = {
    "onnx": in_onnx,
    "openvino": in_openvino,
    "ctranslate2": in_ctranslate2,
}
