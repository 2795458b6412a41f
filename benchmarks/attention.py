"""Attention alone: our fast backend beside our plain one, and the default beside all others."""

import torch
from transformers.masking_utils import create_causal_mask
from transformers.utils import is_flash_attn_2_available

from hf_tformer import TformerDecoderConfig, TformerDecoderModel
from hf_tformer.model.attention import SelfAttention

from .measure import OURS, Absent, Run, Workload
from .peers import PAD, random_ids

EAGER = f"{OURS}, eager"
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


def attention(settings):
    """Forward and backward of one causal layer, mask included: what a training step pays."""
    for length in settings.pick((512, 1024, 2048, 4096), (16, 32, 64)):
        is_promised = length == 2048
        yield Workload(
            f"causal, forward and backward, {length} tokens",
            {
                OURS: lambda length=length: training_layer("sdpa", length, settings),
                EAGER: lambda length=length: training_layer("eager", length, settings),
            },
            {EAGER: 1.5} if is_promised else {},
            {EAGER: 8.0} if is_promised else {},
            measures=("seconds", "MiB"),
            points={OURS: ("sdpa", length), EAGER: ("eager", length)},
        )


def training_layer(backend, length, settings):
    heads, head_dim = settings.pick((8, 64), (4, 8))
    config = TformerDecoderConfig(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        attn_implementation=backend,
    )
    torch.manual_seed(0)
    layer = SelfAttention(config, layer_idx=0, is_causal=True)
    states = 3 * torch.randn(1, length, config.hidden_size)  # loud: some keys matter, most do not
    layer = layer.to(settings.device, settings.torch_dtype)
    states = states.to(settings.device, settings.torch_dtype).requires_grad_()

    def call():
        layer.zero_grad()
        states.grad = None
        mask = create_causal_mask(
            config=config, inputs_embeds=states, attention_mask=None, past_key_values=None
        )
        output, _ = layer(states, mask)
        output.square().mean().backward()
        return output.detach()

    def outcome(output):
        slopes = layer.q_proj.weight.grad
        return {
            "output": output,
            "gradient of the states": states.grad / states.grad.abs().max(),
            "gradient of the queries' weights": slopes / slopes.abs().max(),
        }

    return Run(call, outcome)


def choice(settings):
    """Whoever names no backend must not lose by it."""
    backends = ["eager", "sdpa"]
    if settings.device == "cuda":
        backends += ["flash_attention_2", "flex_attention"]
    for shape in settings.pick(SHAPES, TOY_SHAPES):
        others = {
            name: lambda name=name, shape=shape: reading_layer(name, shape, settings)
            for name in backends
        }
        batch, length, heads, head_dim, padding = shape
        where = f", {padding:.0%} padding" if padding else ""
        yield Workload(
            f"batch {batch}, {length} tokens, {heads} heads of {head_dim}{where}",
            {OURS: lambda shape=shape: reading_layer(None, shape, settings), **others},
            dict.fromkeys(backends, 0.97),
        )


def reading_layer(backend, shape, settings):
    """A model that is hardly more than one layer of attention; `None` leaves the choice to it."""
    batch, length, heads, head_dim, padding = shape
    if backend == "flash_attention_2" and not is_flash_attn_2_available():
        raise Absent("flash-attn is not installed")
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
    model = TformerDecoderModel._from_config(config)
    model = model.to(settings.device, settings.torch_dtype).eval()
    ids = random_ids(config.vocab_size, batch, length, settings)
    mask = torch.ones_like(ids)
    for row in range(round(2 * padding * batch)):
        hidden = length // 2
        ids[row, :hidden], mask[row, :hidden] = PAD, 0
    repeats = settings.pick(max(1, 4096 // (batch * length)), 1)

    @torch.no_grad()
    def call():
        for _ in range(repeats):
            output = model(input_ids=ids, attention_mask=mask, use_cache=False)
        return output

    def outcome(output):
        return {"states": output.last_hidden_state * mask[..., None]}

    return Run(call, outcome, times=1 / repeats)
