"""Attention alone: our fast backend beside our eager one, and the default beside all others."""

from functools import partial

import torch
from transformers.masking_utils import create_causal_mask

from hf_tformer import TformerDecoderConfig, TformerDecoderModel
from hf_tformer.model.attention import SelfAttention

from .measure import OURS, Run, Settings, Workload, Workloads
from .peers import random_batch
from .training import of_one

EAGER = f"{OURS}, eager"
Shape = tuple[int, int, int, int, float]
SHAPES = (  # batch, length, heads, head_dim, padding
    (1, 128, 8, 64, 0.0),
    (1, 512, 8, 64, 0.0),
    (1, 512, 16, 32, 0.0),
    (1, 2048, 8, 64, 0.0),
    (2, 1024, 8, 64, 0.3),
    (4, 512, 4, 128, 0.0),
    (4, 512, 4, 128, 0.3),
    (8, 128, 8, 64, 0.0),
    (8, 128, 8, 64, 0.3),
    (16, 64, 4, 32, 0.0),
    (16, 64, 4, 32, 0.3),
    (32, 16, 8, 64, 0.0),
)
TOY_SHAPES = ((1, 16, 4, 8, 0.0), (3, 16, 4, 8, 0.3))


def attention(settings: Settings) -> Workloads:
    """Run one causal layer forward and backward, mask included, as a training step does."""
    for length in settings.pick((512, 1024, 2048, 4096), (16, 32, 64)):
        is_promised = length == 2048
        yield Workload(
            f"causal, forward and backward, {length} tokens",
            {
                OURS: partial(training_layer, "sdpa", length, settings),
                EAGER: partial(training_layer, "eager", length, settings),
            },
            {EAGER: 1.5} if is_promised else {},
            {EAGER: 8.0} if is_promised else {},
            measures=("seconds", "MiB"),
            points={OURS: ("sdpa", length), EAGER: ("eager", length)},
        )


def training_layer(backend: str, length: int, settings: Settings) -> Run:
    heads, head_dim = settings.pick((8, 64), (4, 8))
    config = TformerDecoderConfig(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        attn_implementation=backend,
    )
    torch.manual_seed(0)
    layer = SelfAttention(config, layer_idx=0, is_causal=True)
    states = 3 * torch.randn(1, length, config.hidden_size)  # large: some keys matter, most do not
    states.requires_grad_()

    def call() -> torch.Tensor:
        layer.zero_grad()
        states.grad = None
        mask = create_causal_mask(
            config=config, inputs_embeds=states, attention_mask=None, past_key_values=None
        )
        output, _ = layer(states, mask)
        output.square().mean().backward()
        return output.detach()

    def outcome(output: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "output": output,
            "gradient of the states": of_one(states.grad),
            "gradient of the queries' weights": of_one(layer.q_proj.weight.grad),
        }

    return Run(call, outcome)


def choice(settings: Settings) -> Workloads:
    """Compare the backend that is chosen where none is named with every other."""
    backends = ("eager", "sdpa")
    for shape in settings.pick(SHAPES, TOY_SHAPES):
        others = {name: partial(one_layer, name, shape, settings) for name in backends}
        batch, length, heads, head_dim, padding = shape
        where = f", {padding:.0%} padding" if padding else ""
        yield Workload(
            f"batch {batch}, {length} tokens, {heads} heads of {head_dim}{where}",
            {OURS: partial(one_layer, None, shape, settings), **others},
            dict.fromkeys(backends, 0.97),
        )


def one_layer(backend: str | None, shape: Shape, settings: Settings) -> Run:
    """Run a model that is hardly more than attention; `None` leaves the backend to it."""
    batch, length, heads, head_dim, padding = shape
    config = TformerDecoderConfig(
        vocab_size=997,
        hidden_size=heads * head_dim,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        **({} if backend is None else {"attn_implementation": backend}),
    )
    torch.manual_seed(0)
    model = TformerDecoderModel._from_config(config).eval()
    padded = round(2 * padding * batch)
    lengths = [length - length // 2] * padded + [length] * (batch - padded)
    inputs = random_batch(config.vocab_size, lengths, padding_side="left")
    repeats = settings.pick(max(1, 4096 // (batch * length)), 1)

    @torch.no_grad()
    def call() -> torch.Tensor:
        for _ in range(repeats):
            output = model(**inputs, use_cache=False)
        return output.last_hidden_state

    def outcome(states: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"states": states * inputs["attention_mask"][..., None]}

    return Run(call, outcome, times=1 / repeats)
