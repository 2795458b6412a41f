"""Read the configuration that `accelerate launch` passes to processes in their environment.

Accelerate's own engine does not shard on a CPU, and says nothing. A run therefore takes the layout
and the few settings that it supports from there, and refuses all others: none is ignored.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from accelerate import ParallelismConfig

from .errors import TrainingError


def process_count() -> int:
    """Return the number of processes that the launcher starts, or 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    return int(os.environ.get("RANK", "0"))


@dataclass(frozen=True)
class Launch:
    """Settings of a launcher; the sizes are None where it names no layout."""

    replicate: int | None = None
    shard: int | None = None
    tensor: int | None = None
    bf16: bool = False
    compile: bool = False
    activation_checkpointing: bool = False
    cpu: bool = False


# variable → the supported values, and the name of the variable in a YAML file
SUPPORTED = {
    "ACCELERATE_MIXED_PRECISION": (("no", "bf16"), "mixed_precision"),
    "ACCELERATE_DYNAMO_BACKEND": (("NO", "INDUCTOR"), "dynamo_backend"),
    "ACCELERATE_DYNAMO_MODE": (("default",), "dynamo_mode"),
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": (("False",), "dynamo_use_fullgraph"),
    "ACCELERATE_DYNAMO_USE_DYNAMIC": (("False",), "dynamo_use_dynamic"),
    "ACCELERATE_USE_DEEPSPEED": (("false",), "distributed_type"),
    "ACCELERATE_USE_MEGATRON_LM": (("false",), "distributed_type"),
    "ACCELERATE_CPU_AFFINITY": (("0",), "enable_cpu_affinity"),
    "FSDP_VERSION": (("2",), "fsdp_version"),
    "FSDP_OFFLOAD_PARAMS": (("false",), "fsdp_offload_params"),
    "FSDP_AUTO_WRAP_POLICY": (("TRANSFORMER_BASED_WRAP",), "fsdp_auto_wrap_policy"),
    "FSDP_RESHARD_AFTER_FORWARD": (("true",), "fsdp_reshard_after_forward"),
    "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": (("false",), "fsdp_activation_checkpointing_offload"),
    "PARALLELISM_CONFIG_CP_SIZE": (("1",), "parallelism_config_cp_size"),
    "PARALLELISM_CONFIG_SP_SIZE": (("1",), "parallelism_config_sp_size"),
}


def read_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """Read the settings of this process's launcher; torchrun and plain python give none."""
    for variable, (values, field) in SUPPORTED.items():
        value = environment.get(variable, values[0])
        if value.lower() not in [supported.lower() for supported in values]:
            raise TrainingError(
                f"{field} ({variable}={value}) of the accelerate configuration is not supported: "
                f"give {' or '.join(values)}, or omit the field"
            )
    return Launch(
        *read_sizes(environment),
        bf16=environment.get("ACCELERATE_MIXED_PRECISION") == "bf16",
        compile=environment.get("ACCELERATE_DYNAMO_BACKEND", "NO").upper() == "INDUCTOR",
        activation_checkpointing=is_true(environment, "FSDP_ACTIVATION_CHECKPOINTING"),
        cpu=is_true(environment, "ACCELERATE_USE_CPU"),
    )


def read_sizes(environment: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Read the numbers of copies, shards and tensor parallel parts.

    FSDP without sizes shards over all processes.
    """
    if is_true(environment, "ACCELERATE_USE_PARALLELISM_CONFIG"):
        try:
            sizes = ParallelismConfig()
        except ValueError as error:
            raise TrainingError(f"the accelerate configuration: {error}") from error
        if sizes.total_size > 1:
            return sizes.dp_replicate_size, sizes.dp_shard_size, sizes.tp_size
    if is_true(environment, "ACCELERATE_USE_FSDP"):
        return 1, int(environment.get("WORLD_SIZE", "1")), 1
    return None, None, None


def is_true(environment: Mapping[str, str], variable: str) -> bool:
    return environment.get(variable, "false").lower() in ("1", "true")
