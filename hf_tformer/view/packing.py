"""Pack numbers for the attention page: rounded, compressed, in base64.

Weights are stored as integers, with fewer bits where there are more weights: a page of 24 layers ×
16 heads × 1,000 tokens has 384 million of them.

    LINEAR  16 bits   value = code / 65535
    ROOT     8 bits   value = (code / 255)²    small weights keep more digits than large ones
    COARSE   8 bits   the same, and weights less than SMALL are 0
"""

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Rounding:
    """A way to store weights as integers of `bits` bits."""

    name: str
    bits: int
    limit: float  # largest number of weights in a page that it is chosen for
    error: float  # largest error of a weight


LEVEL = 4  # a third of the time of zlib's default, 6, and up to 5% more bytes
SMALL = 1e-3
LINEAR = Rounding("linear", 16, 8e6, 0.5 / 65535)
ROOT = Rounding("root", 8, 64e6, 1 / 255)
COARSE = Rounding("coarse", 8, float("inf"), 1 / 255)


def choose_rounding(count: int) -> Rounding:
    return next(r for r in (LINEAR, ROOT, COARSE) if count <= r.limit)


def pack_weights(weights: "torch.Tensor", rounding: Rounding) -> str:
    """Return the packed weights of one head."""
    import torch

    if rounding is LINEAR:
        return pack((weights * 65535).round_().numpy().astype("<u2").tobytes())
    roots = weights.sqrt()
    if rounding is COARSE:
        torch.threshold_(roots, SMALL**0.5, 0.0)
    return pack(roots.mul_(255).round_().to(torch.uint8).numpy().tobytes())


def pack_floats(values: "torch.Tensor") -> str:
    return pack(values.contiguous().numpy().astype("<f4").tobytes())


def pack_booleans(values: "torch.Tensor") -> str:
    return pack(values.contiguous().numpy().tobytes())


def pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, LEVEL)).decode("ascii")


def thumbnail(weights: "torch.Tensor", size: int) -> str:
    """Return a matrix of at most size × size cells: a single large weight stays visible in it."""
    import torch

    shape = [min(size, length) for length in weights.shape[1:]]
    small = torch.nn.functional.adaptive_max_pool2d(weights[None], shape)[0]
    return pack((small.sqrt() * 255).round().numpy().astype("u1").tobytes())
