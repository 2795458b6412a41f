"""A GGUF file: its fields, and its tensors as numbers, whatever type they are packed in."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import torch

from ...engine.aliases import Fields
from ...engine.errors import ConversionError
from ...engine.nearness import ROUNDING

PLAIN_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# What packed types round, of the norm of a tensor, by the first digit of their names.
BY_BITS = {"8": 2e-2, "6": 4e-2, "5": 8e-2, "4": 2e-1}
FEWEST = 6e-1


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Say in one sentence that a file holds what no program writes."""
    try:
        yield
    except ConversionError:
        raise
    except Exception as error:  # the readers of gguf and tokenizers fail in many ways
        raise ConversionError(
            f"{path} is a GGUF file that cannot be read ({type(error).__name__}: {error}): fetch "
            "it again"
        ) from error


class GgufFile:
    """An opened file; a tensor is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        try:
            import gguf
        except ImportError as error:
            raise ConversionError(
                f"{path} is a GGUF file, which the package gguf reads: run `pip install gguf`, "
                "and import it again"
            ) from error
        self.path = path
        with damage(path):
            reader = gguf.GGUFReader(path)
            self.stored = reader.fields
            self.fields: Fields = {
                name: shortest(field.contents()) for name, field in reader.fields.items()
            }
            self.packed = {tensor.name: tensor for tensor in reader.tensors}
        if (parts := self.fields.get("split.count", 1)) > 1:
            raise ConversionError(
                f"{path} is one of {parts} parts: run `llama-gguf-split --merge {path} whole.gguf` "
                "of llama.cpp with the first of them, and import whole.gguf"
            )

    @cached_property
    def architecture(self) -> str:
        return str(self.fields.get("general.architecture"))

    def below(self, prefix: str) -> Fields:
        """Return the fields whose names begin so, without that."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.fields.items()
            if name.startswith(prefix)
        }

    def described(self) -> Fields:
        """Return the fields that describe the model."""
        return self.below(f"{self.architecture}.")

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(size) for size in reversed(self.packed[name].shape))

    def dtype(self, name: str) -> torch.dtype:
        """Return the dtype of the numbers; those that are packed in few bits become float32."""
        return PLAIN_TYPES.get(self.packed[name].tensor_type.name, torch.float32)

    def nbytes(self, name: str) -> int:
        return prod(self.shape(name)) * self.dtype(name).itemsize

    def read(self, name: str) -> torch.Tensor:
        import gguf

        tensor = self.packed[name]
        kind, dtype, data = tensor.tensor_type, self.dtype(name), tensor.data
        if kind.name in PLAIN_TYPES:
            return torch.frombuffer(bytearray(data.tobytes()), dtype=dtype).view(self.shape(name))
        try:
            return torch.from_numpy(gguf.dequantize(data, kind)).view(self.shape(name))
        except NotImplementedError as error:
            raise ConversionError(
                f"{name} is packed as {kind.name}, which the package gguf cannot unpack: give a "
                "file of another type, such as Q8_0 or Q4_K_M"
            ) from error


def rounding(kind: str) -> float:
    """Return what a type rounds, of the norm of a tensor."""
    if kind in PLAIN_TYPES:
        return ROUNDING[PLAIN_TYPES[kind]]
    return BY_BITS.get(next(filter(str.isdigit, kind), ""), FEWEST)


def shortest(value: Any) -> Any:
    """Return a float with the fewest digits that float32 tells apart, as 1e-05; others as is."""
    if not isinstance(value, float):
        return value
    exact = torch.tensor(value, dtype=torch.float32)
    rounded = (float(f"{value:.{digits}g}") for digits in range(1, 17))
    return next((x for x in rounded if torch.tensor(x, dtype=torch.float32) == exact), value)
