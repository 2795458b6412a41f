"""Mine, a model of its own kind that is built on the encoder of hf_tformer."""

from .configuration_mine import MineConfig
from .modeling_mine import MineForMaskedLM, MineModel

__all__ = ["MineConfig", "MineForMaskedLM", "MineModel"]
