"""Distribute a model among the processes of a run: as copies, shards, or parts of each layer."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import DistributedConfig, PreTrainedConfig, PreTrainedModel

from .errors import TrainingError
from .launching import Launch, process_count, process_rank


@dataclass(frozen=True)
class Layout:
    """A model in `replicate` copies, each in `shard` shards, each layer in `tensor` parts.

    Processes that hold different parts of the same layers compute the same rows. There are
    `data_size` groups of such processes, each with rows of its own, and this process is in group
    `data_rank`.
    """

    replicate: int = 1
    shard: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        for name, size in dataclasses.asdict(self).items():
            if size < 1:
                raise TrainingError(f"{name} is {size}: give 1 or more")

    @property
    def processes(self) -> int:
        return self.replicate * self.shard * self.tensor

    @property
    def data_size(self) -> int:
        return self.replicate * self.shard

    @property
    def data_rank(self) -> int:
        return process_rank() // self.tensor  # the parts of a layer lie side by side

    @property
    def is_whole(self) -> bool:
        """Return whether each process holds the whole model."""
        return self.shard * self.tensor == 1

    def open(
        self,
        model_class: type[PreTrainedModel],
        folder: str | Path,
        device: torch.device,
        bf16: bool = False,
    ) -> PreTrainedModel:
        """Load the part of a model that this process holds.

        With `bf16`, shards are gathered and computed with in bfloat16.
        """
        if self.is_whole:
            return model_class.from_pretrained(folder).to(device)
        return model_class.from_pretrained(folder, distributed_config=self.sizes(bf16))

    def refuse(self, config: PreTrainedConfig) -> None:
        """Refuse a model that this layout cannot train as a single process would."""
        heads = config.num_attention_heads, config.num_key_value_heads
        stays_whole = config.qk_norm == "all" or config.score_bias  # see plan_for in layers.py
        for name, value in zip(("num_attention_heads", "num_key_value_heads"), heads, strict=True):
            if value % self.tensor and not stays_whole:
                raise TrainingError(
                    f"{name} is {value}, which {self.tensor} tensor parallel processes cannot "
                    f"share evenly: give a multiple of {self.tensor}"
                )
        parts = self.shard * self.tensor
        is_split_twice = self.shard > 1 and self.tensor > 1 and config.tie_word_embeddings
        if is_split_twice and config.vocab_size % parts:
            raise TrainingError(
                f"vocab_size is {config.vocab_size}, and {parts} parts of a table that is tied to "
                f"the head have to be equal: make it a multiple of {parts} (--vocab_multiple "
                f"{parts}), or untie the head"
            )

    def sizes(self, bf16: bool) -> DistributedConfig:
        sizes = {"fsdp_size": self.shard, "tp_size": self.tensor, "fsdp_mixed_precision": bf16}
        if self.replicate > 1:
            sizes["dp_replicate_size"] = self.replicate
        known = {field.name for field in dataclasses.fields(DistributedConfig)}
        if unknown := sizes.keys() - known:
            raise TrainingError(
                f"transformers {transformers.__version__} has no {', '.join(unknown)}: install a "
                "later one, or choose another layout"
            )
        return DistributedConfig(**sizes)

    def wrap(self, model: PreTrainedModel) -> nn.Module:
        """Wrap copies of a model in DDP, which averages gradients; others average by themselves."""
        return DistributedDataParallel(model) if self.is_whole and self.replicate > 1 else model


def choose_layout(
    launch: Launch, replicate: int | None, shard: int | None, tensor: int | None
) -> Layout:
    """Return the layout that flags or the launcher name; by default each process holds a copy."""
    flags, launched = (replicate, shard, tensor), (launch.replicate, launch.shard, launch.tensor)
    if any(flags) and any(launched):
        raise TrainingError(
            "--replicate, --shard and --tensor name a layout, and so does the accelerate "
            "configuration: omit one of them"
        )
    copies, shards, parts = launched if any(launched) else flags
    shards, parts = shards or 1, parts or 1
    layout = Layout(copies or max(1, process_count() // (shards * parts)), shards, parts)
    if layout.processes != process_count():
        raise TrainingError(
            f"{layout.replicate} copies in {layout.shard} shards, each layer in {layout.tensor} "
            f"parts, take {layout.processes} processes, and there are {process_count()}: start as "
            "many as the layout takes"
        )
    return layout


def choose_device(launch: Launch) -> torch.device:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if launch.cpu or accelerator is None:
        return torch.device("cpu")
    return torch.device(accelerator.type, int(os.environ.get("LOCAL_RANK", "0")))


@contextlib.contextmanager
def joined_processes(device: torch.device) -> Iterator[None]:
    """Join the processes of a run to a group, and wait for all of them at the end."""
    if process_count() == 1 or dist.is_initialized():
        yield
        return
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    join(None if device.type == "cpu" else device)
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()


def join(device: torch.device | None) -> None:
    """Join the processes; after a restart the new ones, not those that have ended.

    On one machine torchrun keeps the addresses of processes when it starts others in their place.
    The new ones would read them, and wait for processes that no longer exist.
    """
    if not dist.is_torchelastic_launched() or os.environ.get("GROUP_WORLD_SIZE") != "1":
        dist.init_process_group(device_id=device)
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(address, port, process_count(), process_rank() == 0 and not is_served)
    attempt = dist.PrefixStore(f"restart {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group(
        store=attempt, device_id=device, rank=process_rank(), world_size=process_count()
    )
