"""An adapter for TransformerLens, which says where its hook points are in our models.

`build_bridge_from_module` finds Adapter by the entry points of this package; `boot_transformers`
only knows its own list. Our modules compute everything, inside the bridges of TransformerLens. Only
attention has a backend of its own here, so that a hook can change the pattern.
"""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
from transformer_lens.model_bridge.generalized_components import (
    AttentionBridge,
    BlockBridge,
    EmbeddingBridge,
    LinearBridge,
    NormalizationBridge,
    ParallelBlockBridge,
    UnembeddingBridge,
)
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from .model.attention import eager_attention

BACKEND = "transformer_lens"
PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}


def hooked_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *mask: Any,
    pattern_fn: Callable[[Tensor], Tensor],
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute eager attention, and let `pattern_fn` change its weights.

    The weights are not returned: a bridge would show them as scores, too.
    """
    _, weights = eager_attention(module, query, key, value, *mask, **options)
    pattern = pattern_fn(weights)
    output = pattern.unflatten(1, (key.shape[1], -1)) @ value.unsqueeze(2)
    return output.flatten(1, 2).transpose(1, 2).contiguous(), None


AttentionInterface.register(BACKEND, hooked_attention)


def show_pattern(attention: Any) -> None:
    """Let this module alone use `hooked_attention`."""
    attention.config = copy.copy(attention.config)
    attention.config._attn_implementation = BACKEND
    attention.accepts_pattern_fn = True  # a bridge reads this


class Adapter(ArchitectureAdapter):
    """The adapter of our families, which finds the parts of a model in the model itself."""

    supports_fold_ln = False
    supports_center_writing_weights = False

    def prepare_model(self, model: PreTrainedModel) -> None:
        model.set_attn_implementation("eager")  # with masks and biases in the same shape
        self.component_mapping: dict[str, Any] = {}
        stacks = {"": "model"}
        if model.config.is_encoder_decoder:
            stacks = {"encoder_": "model.encoder", "decoder_": "model.decoder"}
        for prefix, path in stacks.items():
            stack = model.get_submodule(path)
            self.component_mapping |= {
                f"{prefix}embed": EmbeddingBridge(name=f"{path}.embed_tokens"),
                f"{prefix}blocks": self.block(f"{path}.layers", stack.layers, model.config),
                f"{prefix}ln_final": self.norm(f"{path}.norm"),
            }
        self.component_mapping["unembed"] = UnembeddingBridge(name="lm_head", config=self.cfg)

    def block(
        self, path: str, layers: nn.ModuleList, config: PreTrainedConfig
    ) -> BlockBridge | ParallelBlockBridge:
        layer = layers[-1]  # the first may lack a norm that the others have
        is_gated = hasattr(layer.mlp, "gate_proj")
        parts = {"mlp": self._gated_mlp() if is_gated else self._ungated_mlp()}
        names = [name for name in ("self_attn", "cross_attn", "mlp") if hasattr(layer, name)]
        for name in names[:-1]:
            parts[name.removeprefix("self_")] = self.attention(name)
            for each in layers:
                show_pattern(getattr(each, name))
        for place, name in enumerate(names, start=1):
            for end, norm in (("", f"{name}_norm"), ("_post", f"{name}_output")):
                if hasattr(getattr(layer, norm), "weight"):  # otherwise it is an identity
                    parts[f"ln{place}{end}"] = self.norm(norm)
        kind = ParallelBlockBridge if getattr(config, "parallel_residual", None) else BlockBridge
        aliases = residual_hooks(parts, names, config.norm_position == "post")
        return kind(path, self.cfg, submodules=parts, hook_alias_overrides=aliases)

    def attention(self, name: str) -> AttentionBridge:
        projections = {key: LinearBridge(name=ours) for key, ours in PROJECTIONS.items()}
        return AttentionBridge(name, self.cfg, submodules=projections)

    def norm(self, name: str) -> NormalizationBridge:
        return NormalizationBridge(name, self.cfg, use_native_layernorm_autograd=True)


def residual_hooks(
    parts: dict[str, object], names: list[str], is_post_norm: bool
) -> dict[str, str]:
    """Return the hook points for the outputs of attention and MLP, and for the stream between."""
    entry = "ln2" if "ln2" in parts else names[1]
    last = f"ln{len(names)}_post"
    return {
        "hook_attn_out": "ln1_post.hook_out" if "ln1_post" in parts else "attn.hook_out",
        "hook_resid_mid": "ln1.hook_out" if is_post_norm else f"{entry}.hook_in",
        "hook_mlp_out": f"{last}.hook_out" if last in parts else "mlp.hook_out",
    }
