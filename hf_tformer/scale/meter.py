"""Measure the speed and the memory of a training.

Model FLOPs utilisation is the share of what the devices could compute that the model needs:

    MFU = tokens per second · FLOPs of a token / (devices · peak FLOPs per second of a device)

`hf_tformer.plan.training_flops` counts the FLOPs of a token, forward and backward. The model does
not need what activation checkpointing recomputes, so that lowers the utilisation. The peak is that
of dense bfloat16 products, as vendors publish it, also for a run in float32.
"""

import sys
import time

import torch
from transformers import PreTrainedConfig

from ..plan import training_flops

# The beginning of a device's name → peak of dense bfloat16 products, FLOPs per second. The first
# match counts.
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
    "AMD Instinct MI250X": 1.915e14,  # of one of its two halves, which torch sees as a device
}


class Meter:
    """Counts the tokens of all processes and the seconds of steps.

    Call `tick` after each step and `skip` after anything else that takes time, such as saving.
    `read` returns the figures since its last call; without a peak there is no utilisation.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        row_length: int,
        device: torch.device,
        devices: int = 1,
        peak_flops: float | None = None,
    ):
        peak = peak_flops or known_peak(device)
        self.flops_per_token = training_flops(config, row_length) if peak else 0.0
        self.device = device
        self.peak = (peak or 0.0) * devices
        self.tokens, self.seconds, self.mark = 0, 0.0, time.perf_counter()

    def tick(self, tokens: int) -> None:
        """Count a step of so many tokens, which ends now."""
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
    """Return the published peak of a GPU, or None: the name of a CPU does not determine it."""
    if device.type != "cuda":  # ROCm's devices have this type, too
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAKS.items() if name.startswith(known)), None)


def peak_memory(device: torch.device) -> int:
    """Return the peak bytes so far: of tensors on an accelerator, or of the whole process."""
    if device.type not in ("cpu", "mps"):
        return torch.accelerator.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024
