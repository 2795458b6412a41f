"""Where llama.cpp lays tensors out otherwise than transformers: `inverse` makes its tensor."""

from ...engine.aliases import Config
from ...engine.transforms import (
    DropPadding,
    InterleavedHeads,
    RotaryPairs,
    SplitHeads,
    Tensors,
    Transpose,
)


class SideBySide:
    """Put queries of all heads first, then keys, then values; theirs has each head together."""

    def forward(self, tensors: Tensors, config: Config) -> Tensors:
        return InterleavedHeads().inverse(SplitHeads().forward(tensors, config), config)

    def inverse(self, tensors: Tensors, config: Config) -> Tensors:
        return SplitHeads().inverse(InterleavedHeads().forward(tensors, config), config)


class OneMore:
    """Store the weight of a norm itself, where theirs has its offset from one."""

    def forward(self, tensors: Tensors, config: Config) -> Tensors:
        return tuple(tensor - 1 for tensor in tensors)

    def inverse(self, tensors: Tensors, config: Config) -> Tensors:
        return tuple(tensor + 1 for tensor in tensors)


class WithoutPadding:
    """Store the positions of real tokens, without those of padding before them."""

    def forward(self, tensors: Tensors, config: Config) -> Tensors:
        return DropPadding().inverse(tensors, config)

    def inverse(self, tensors: Tensors, config: Config) -> Tensors:
        return tuple(tensor[-config.max_position_embeddings :] for tensor in tensors)


class SmallerLogits:
    """Store the last norm multiplied by logit_scale, which the graph does not apply."""

    def forward(self, tensors: Tensors, config: Config) -> Tensors:
        return tuple(tensor / config.logit_scale for tensor in tensors)

    def inverse(self, tensors: Tensors, config: Config) -> Tensors:
        return tuple(tensor * config.logit_scale for tensor in tensors)


NEIGHBOURS = {
    f"{x}_proj.{kind}": RotaryPairs(heads)
    for x, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads"))
    for kind in ("weight", "bias")
}
TOGETHER = {f"query_key_value.{kind}": SideBySide() for kind in ("weight", "bias")}
BIGCODE = {f"c_attn.{kind}": SideBySide() for kind in ("weight", "bias")}
CONV1D = {f"{name}.weight": Transpose() for name in ("c_attn", "c_proj", "c_fc")}
BEHIND_PADDING = {"position_embeddings.weight": WithoutPadding()}
OFFSET = {"norm.weight": OneMore()}
