"""x-transformers: a TransformerWrapper around a Decoder or an Encoder, by their usual options."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from .meta_llama import rotate_neighbours
from .parts import later, rotary_angles, split_heads

Activation = Callable[[torch.Tensor], torch.Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "relu2": lambda states: F.relu(states).square(),
}


class LayerNorm(nn.Module):
    def __init__(self, config: SimpleNamespace, offset: float) -> None:
        super().__init__()
        self.gamma, self.offset = nn.Parameter(torch.ones(config.dim)), offset

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(states, self.gamma.shape) * (self.gamma + self.offset)


class RMSNorm(nn.Module):
    def __init__(self, config: SimpleNamespace, offset: float) -> None:
        super().__init__()
        self.g, self.offset = nn.Parameter(torch.ones(config.dim)), offset

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return F.normalize(states, dim=-1) * len(self.g) ** 0.5 * (self.g + self.offset)


def norm(config: SimpleNamespace) -> nn.Module:
    kind = LayerNorm if config.norm == "gamma" else RMSNorm
    return kind(config, float(config.norm_add_unit_offset))


class Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config, size = config, config.attn_dim_head
        self.to_q = nn.Linear(config.dim, config.heads * size, bias=False)
        self.to_k = nn.Linear(config.dim, config.kv_heads * size, bias=False)
        self.to_v = nn.Linear(config.dim, config.kv_heads * size, bias=False)
        self.to_out = nn.Linear(config.heads * size, config.dim, bias=False)

    def forward(self, states: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        config = self.config
        query = self.rotated(split_heads(self.to_q(states), config.heads))
        key = self.rotated(split_heads(self.to_k(states), config.kv_heads))
        value = split_heads(self.to_v(states), config.kv_heads)
        times = config.heads // config.kv_heads
        # Query head h attends by key head h modulo their number.
        key, value = key.repeat(1, times, 1, 1), value.repeat(1, times, 1, 1)
        weights = (query @ key.mT / config.attn_dim_head**0.5 + bias).softmax(dim=-1)
        return self.to_out((weights @ value).transpose(1, 2).flatten(2))

    def rotated(self, states: torch.Tensor) -> torch.Tensor:
        config, width = self.config, self.config.rotary_emb_dim
        if not width:
            return states
        angles = rotary_angles(states.shape[-2], width, config.rotary_base)
        angles = angles / config.rotary_interpolation_factor
        turned = rotate_neighbours(states[..., :width], angles)
        return torch.cat((turned, states[..., width:]), dim=-1)


class FeedForward(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config, inner = config, config.inner
        if config.ff_glu:
            first = nn.ModuleDict({"proj": nn.Linear(config.dim, 2 * inner)})
        else:
            first = nn.ModuleDict({"0": nn.Linear(config.dim, inner, bias=config.ff_bias)})
        last = nn.Linear(inner, config.dim, bias=config.ff_bias)
        self.ff = nn.ModuleDict({"0": first, "2": last})

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        (first,) = self.ff["0"].children()
        act, states = ACTIVATIONS[self.config.activation], first(states)
        if self.config.ff_glu:
            up, gate = states.chunk(2, dim=-1)
            return self.ff["2"](up * act(gate))
        return self.ff["2"](act(states))


class Branch(nn.ModuleList):
    """A block with the norms before it, behind it and behind the sum."""

    def __init__(self, config: SimpleNamespace, block: nn.Module) -> None:
        places = {"pre": "0", "both": "01", "post": "2"}[config.norm_position]
        super().__init__([nn.ModuleDict({place: norm(config) for place in places}), block])

    def forward(self, states: torch.Tensor, *args: torch.Tensor) -> torch.Tensor:
        norms, block = self
        before, behind, last = (dict(norms.named_children()).get(p, nn.Identity()) for p in "012")
        return last(states + behind(block(before(states), *args)))


class RelativeBias(nn.Module):
    """T5's buckets of distances, as both sides have them."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.relative_attention_bias = nn.Embedding(32, heads)

    def forward(self, length: int) -> torch.Tensor:
        ahead = torch.arange(length)[None] - torch.arange(length)[:, None]
        distance = ahead.abs()
        far = 8 + ((distance.clamp(min=1) / 8).log() / torch.tensor(16.0).log() * 8).long()
        bucket = torch.where(distance < 8, distance, far.clamp(max=15)) + 16 * (ahead > 0)
        return self.relative_attention_bias(bucket).permute(2, 0, 1)


class AttentionLayers(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        blocks = (kind(config) for _ in range(config.depth) for kind in (Attention, FeedForward))
        self.layers = nn.ModuleList(Branch(config, block) for block in blocks)
        self.rel_pos = RelativeBias(config.heads) if config.rel_pos_bias else None
        self.final_norm = norm(config) if config.has_final_norm else nn.Identity()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        bias = self.bias(states)
        for attention, feed_forward in zip(self.layers[::2], self.layers[1::2], strict=True):
            states = feed_forward(attention(states, bias))
        return self.final_norm(states)

    def bias(self, states: torch.Tensor) -> torch.Tensor:
        """Return what is added to the scores, [heads, seq, seq], or what broadcasts to it."""
        config, length = self.config, states.shape[1]
        bias = torch.zeros(length, length)
        if config.causal:
            bias = bias.masked_fill(later(states), float("-inf"))
        if config.attn_max_attend_past is not None:
            far = torch.ones(length, length, dtype=torch.bool).tril(
                -config.attn_max_attend_past - 1
            )
            bias = bias.masked_fill(far, float("-inf"))
        if config.alibi_pos_bias:
            steps = torch.arange(length)
            distances = (steps[None] - steps[:, None]).abs()
            bias = bias - slopes(config.heads)[:, None, None] * distances
        if self.rel_pos is not None:
            bias = bias + self.rel_pos(length) * config.attn_dim_head**0.5
        return bias


def slopes(heads: int) -> torch.Tensor:
    """Return ALiBi's slopes; where heads are no power of two, some of twice as many follow."""
    power = 2 ** (heads.bit_length() - 1)
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    rest = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return torch.tensor((first + rest)[:heads])


class XTransformers(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        words = nn.Embedding(config.num_tokens, config.dim)
        self.token_emb, self.words = nn.ModuleDict({"emb": words}), [words]  # hidden from names
        places = {"emb": nn.Embedding(config.max_seq_len, config.dim)}
        self.pos_emb = nn.ModuleDict(places if config.has_positions else {})
        self.post_emb_norm = LayerNorm(config, 0.0) if config.post_emb_norm else nn.Identity()
        self.attn_layers = AttentionLayers(config)
        head = nn.Linear(config.dim, config.num_tokens, bias=False)
        self.to_logits = nn.Identity() if config.tied else head

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        config = self.config
        states = self.token_emb["emb"](ids)
        if config.has_positions:
            states = states + self.pos_emb["emb"](torch.arange(ids.shape[1])) * config.dim**-0.5
        states = self.attn_layers(self.post_emb_norm(states))
        if not config.tied:
            return self.to_logits(states)
        return F.linear(states, self.words[0].weight) * config.tie_embedding_scale
