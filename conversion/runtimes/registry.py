"""The runtimes, by the names that follow --to."""

from .runtime import Runtime

RUNTIMES: dict[str, Runtime] = {runtime.name: runtime for runtime in ()}
