"""The layouts in which a number of devices can train a model."""

from dataclasses import dataclass

from ..scale.layout import Layout


@dataclass(frozen=True)
class StagedLayout(Layout):
    """A layout whose layers are also divided into pipeline `stages`.

    Tensor parallel parts lie on neighbouring devices, then shards, then copies, then stages.
    """

    stages: int = 1

    @property
    def processes(self) -> int:
        return super().processes * self.stages

    @property
    def is_sharded(self) -> bool:
        """Return whether FSDP holds the weights, as it also does for tensor parallel copies."""
        return self.data_size > 1 and not self.is_whole

    def __str__(self) -> str:
        """Name the layout, as in `HSDP 8 x 4, TP 2`."""
        names = []
        if self.stages > 1:
            names.append(f"PP {self.stages}")
        if self.is_sharded and self.replicate > 1:
            names.append(f"HSDP {self.replicate} x {self.shard}")
        elif self.shard > 1:
            names.append(f"FSDP2 {self.shard}")
        elif self.replicate > 1:
            names.append(f"DDP {self.replicate}")
        if self.tensor > 1:
            names.append(f"TP {self.tensor}")
        return ", ".join(names) or "one device"
