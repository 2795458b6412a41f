"""What `accelerate launch` says of a run; it tells the processes by their environment.

Accelerate's own engine does not shard on a CPU, and says nothing. So a run takes the layout and the
few settings that it has a meaning for, and refuses the others; none is passed over.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from accelerate import ParallelismConfig

from .errors import TrainingError


def process_count() -> int:
    """As the launcher says, before the processes are joined; one where there is none."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    return int(os.environ.get("RANK", "0"))


@dataclass(frozen=True)
class Launch:
    """The sizes are None where the launcher names no layout."""

    replicate: int | None = None
    shard: int | None = None
    tensor: int | None = None
    bf16: bool = False
    compile: bool = False
    activation_checkpointing: bool = False
    cpu: bool = False


# variable → the values that a run can follow, and what the variable is called in a YAML file
FOLLOWED = {
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
    "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": (
        ("false",),
        "fsdp_activation_checkpointing_offload",
    ),
    "PARALLELISM_CONFIG_CP_SIZE": (("1",), "parallelism_config_cp_size"),
    "PARALLELISM_CONFIG_SP_SIZE": (("1",), "parallelism_config_sp_size"),
}


def read_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """What the launcher of this process asks for; torchrun and plain python ask for nothing."""
    for variable, (values, field) in FOLLOWED.items():
        value = environment.get(variable, values[0])
        if value.lower() not in [followed.lower() for followed in values]:
            raise TrainingError(
                f"{field} ({variable}={value}) of the accelerate configuration cannot be followed: "
                f"give {' or '.join(values)}, or leave the field away"
            )
    return Launch(
        *asked_layout(environment),
        bf16=environment.get("ACCELERATE_MIXED_PRECISION") == "bf16",
        compile=environment.get("ACCELERATE_DYNAMO_BACKEND", "NO").upper() == "INDUCTOR",
        activation_checkpointing=is_true(environment, "FSDP_ACTIVATION_CHECKPOINTING"),
        cpu=is_true(environment, "ACCELERATE_USE_CPU"),
    )


def asked_layout(environment: Mapping[str, str]) -> tuple[int | None, ...]:
    """Copies, shards and tensor parallel parts; FSDP without sizes shards over all processes."""
    if is_true(environment, "ACCELERATE_USE_PARALLELISM_CONFIG"):
        try:
            asked = ParallelismConfig()
        except ValueError as error:
            raise TrainingError(f"the accelerate configuration: {error}") from error
        if asked.total_size > 1:
            return asked.dp_replicate_size, asked.dp_shard_size, asked.tp_size
    if is_true(environment, "ACCELERATE_USE_FSDP"):
        return 1, int(environment.get("WORLD_SIZE", "1")), 1
    return None, None, None


def is_true(environment: Mapping[str, str], variable: str) -> bool:
    return environment.get(variable, "false").lower() in ("1", "true")
