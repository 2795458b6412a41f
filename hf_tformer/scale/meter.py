"""How fast a training is, and how much memory it takes.

Model FLOPs utilisation is the share of what the devices could compute that the model needs:

    MFU = tokens per second · FLOPs of a token / (devices · peak FLOPs per second of a device)

`hf_tformer.plan.training_flops` says what a token needs, forward and backward. What activation
checkpointing computes a second time is not needed, so it lowers the figure. The peak is that of
dense bfloat16 products, which makers publish; a run in float32 is measured by it, too.
"""

import sys
import time
from typing import TYPE_CHECKING

import torch

from ..plan import training_flops

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# What a device is called begins like this → peak of dense bfloat16, FLOPs per second. The first
# that fits counts.
PEAKS = {
    "NVIDIA B200": 2.25e15,
    "NVIDIA H100 PCIe": 7.56e14,
    "NVIDIA H100": 9.89e14,
    "NVIDIA H200": 9.89e14,
    "NVIDIA GH200": 9.89e14,
    "NVIDIA A100": 3.12e14,
    "NVIDIA L40S": 3.62e14,
    "NVIDIA L4": 1.21e14,
    "NVIDIA A10G": 7.0e13,
    "NVIDIA GeForce RTX 4090": 1.65e14,
    "NVIDIA GeForce RTX 3090": 7.1e13,
    "AMD Instinct MI300X": 1.307e15,
    "AMD Instinct MI250X": 1.915e14,  # of one of its two halves, which torch takes for a device
}


class Meter:
    """Tokens of all processes, and the seconds of steps alone.

    Call `tick` after each step and `skip` after whatever else took time, such as saving; `read`
    tells the figures since it was called last. Without a peak there is no utilisation.
    """

    def __init__(
        self,
        config: "PreTrainedConfig",
        row_length: int,
        device: torch.device,
        devices: int = 1,
        peak_flops: float | None = None,
    ):
        peak = peak_flops or known_peak(device)
        self.flops_per_token = training_flops(config, row_length) if peak else None
        self.device = device
        self.peak = peak and peak * devices
        self.tokens, self.seconds, self.mark = 0, 0.0, time.perf_counter()

    def tick(self, tokens: int) -> None:
        """A step of so many tokens is over."""
        now = time.perf_counter()
        self.seconds += now - self.mark
        self.tokens += tokens
        self.mark = now

    def skip(self) -> None:
        self.mark = time.perf_counter()

    def read(self) -> dict[str, float]:
        rate = self.tokens / self.seconds if self.seconds else 0.0
        self.tokens, self.seconds = 0, 0.0
        figures = {"tokens_per_second": rate, "memory": peak_memory(self.device)}
        if self.peak:
            figures["mfu"] = rate * self.flops_per_token / self.peak
        return figures


def known_peak(device: torch.device) -> float | None:
    """What makers say of this device; None of a processor, whose peak its name does not tell."""
    if device.type != "cuda":  # ROCm calls its devices so, too
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAKS.items() if name.startswith(known)), None)


def peak_memory(device: torch.device) -> int:
    """Bytes at the highest point so far: tensors on an accelerator, else all of the process."""
    if device.type not in ("cpu", "mps"):
        return torch.accelerator.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024
