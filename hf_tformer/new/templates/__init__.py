"""Mine, a model of its own kind that is built on TformerDecoderModel of hf_tformer."""

from .configuration_mine import MineConfig
from .modeling_mine import MineForCausalLM, MineModel

__all__ = ["MineConfig", "MineForCausalLM", "MineModel"]
