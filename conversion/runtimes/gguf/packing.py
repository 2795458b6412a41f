"""Pack the weights of a GGUF file in few bits, by llama.cpp's own quantiser.

The file is proven in float32 first. Then only the numbers of tensors change, and each stays as near
as its type allows. A row that a type cannot hold in whole blocks is packed in another one, which
llama.cpp chooses.
"""

from pathlib import Path

import torch

from ...engine.errors import ConversionError
from ...engine.nearness import distance
from .file import GgufFile, rounding

# dtype → llama.cpp's number of the mixture of types
FEW_BITS = {"q6_k": 18, "q5_k_m": 17, "q4_k_m": 15, "q4_0": 2}
OF_PACKING = ("GGUF.", "general.file_type", "general.quantization_version")


def pack(path: Path, dtype: str) -> None:
    """Replace a file of float32 by one of a few bits, or refuse what is not the same model."""
    packed = path.with_name("packed.gguf")
    quantise(path, packed, FEW_BITS[dtype])
    refuse_other_model(GgufFile(path), GgufFile(packed))
    packed.replace(path)


def quantise(path: Path, packed: Path, number: int) -> None:
    from cyllama.llama import llama_cpp

    llama_cpp.disable_logging()
    params = llama_cpp.LlamaModelQuantizeParams()
    params.ftype, params.nthread = number, torch.get_num_threads()
    llama_cpp.model_quantize(str(path), str(packed), params)


def refuse_other_model(exact: GgufFile, packed: GgufFile) -> None:
    """Refuse a file of other fields or tensors, or with numbers that its types do not explain."""
    fields = [
        {name: x for name, x in file.fields.items() if not name.startswith(OF_PACKING)}
        for file in (exact, packed)
    ]
    if fields[0] != fields[1] or exact.packed.keys() != packed.packed.keys():
        raise ConversionError(
            "llama.cpp's quantiser changed fields or names of the model: nothing is kept; please "
            "report this configuration"
        )
    for name, tensor in packed.packed.items():
        kind = tensor.tensor_type.name
        away = distance(exact.read(name), packed.read(name))
        if not away <= rounding(kind):  # in this order, so that NaN is refused as well
            raise ConversionError(
                f"{name} was packed as {kind} by llama.cpp's quantiser and differs by {away:.1e} "
                f"of its norm, more than that type rounds ({rounding(kind):.0e}): nothing is kept; "
                "choose q8_0, or report this model"
            )
