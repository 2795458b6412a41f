"""Mine, a model of its own kind that is built on the encoder-decoder of hf_tformer."""

from .configuration_mine import MineConfig
from .modeling_mine import MineForConditionalGeneration, MineModel

__all__ = ["MineConfig", "MineForConditionalGeneration", "MineModel"]
