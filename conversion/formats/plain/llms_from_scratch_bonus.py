"""Qwen3 and Gemma 3 of LLMs-from-scratch: the norm of queries says how wide a head is."""

from functools import partial
from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.errors import ConversionError
from ...engine.format import DECODER
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat
from ...engine.rules import Rule
from ...references.llms_from_scratch_bonus import Gemma3, Qwen3
from ..decoders.llama import ALL_OF_THEM
from ..decoders.llama import FIXED as FIXED_OF_NAMES
from .llms_from_scratch import IGNORED, PROJECTIONS, shared_fields, shared_sizes

OURS, QWEN3_BLOCK, GEMMA3_BLOCK = "model.layers.{i}", "trf_blocks.{i}", "blocks.{i}"
WEIGHTS = {
    **PROJECTIONS,
    "mlp.gate_proj": "ff.fc1",
    "mlp.up_proj": "ff.fc2",
    "mlp.down_proj": "ff.fc3",
}
NORMS_OF_HEADS = {"self_attn.q_norm": "att.q_norm", "self_attn.k_norm": "att.k_norm"}
QWEN3_NORMS = {**NORMS_OF_HEADS, "self_attn_norm": "norm1", "mlp_norm": "norm2"}
GEMMA3_NORMS = {
    **NORMS_OF_HEADS,
    "self_attn_norm": "input_layernorm",
    "self_attn_output": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_output": "post_feedforward_layernorm",
}
FULL_EVERY = 6  # of the layers of every released Gemma 3


def rules(block: str, norms: dict[str, str]) -> tuple[Rule, ...]:
    return (
        Rule("model.embed_tokens.weight", "tok_emb.weight"),
        Rule("model.norm.weight", "final_norm.scale"),
        Rule("lm_head.weight", "out_head.weight"),
        *(Rule(f"{OURS}.{x}.weight", f"{block}.{name}.weight") for x, name in WEIGHTS.items()),
        *(Rule(f"{OURS}.{x}.weight", f"{block}.{name}.scale") for x, name in norms.items()),
    )


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace, block: str) -> Fields:
    def rows(name: str) -> int:
        return checkpoint.shape(f"{block.replace('{i}', '0')}.{name}")[0]

    head_dim = rows("att.q_norm.scale")
    return {
        **shared_sizes(checkpoint, block),
        "hidden_dim": rows("ff.fc1.weight"),
        "head_dim": head_dim,
        "n_heads": rows("att.W_query.weight") // head_dim,
        "n_kv_groups": rows("att.W_key.weight") // head_dim,
    }


def gemma3_sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    found = sizes(checkpoint, settings, GEMMA3_BLOCK)
    scalar = settings.query_pre_attn_scalar
    if scalar is None:
        found["query_pre_attn_scalar"] = found["head_dim"]
    elif not (isinstance(scalar, (int, float)) and scalar > 0):
        raise ConversionError(
            f"query_pre_attn_scalar is {scalar!r}: give a number above zero, or none where it is "
            "the size of a head"
        )
    if settings.layer_types is None:
        kinds = ["sliding_attention"] * (FULL_EVERY - 1) + ["full_attention"]
        found["layer_types"] = [kinds[i % FULL_EVERY] for i in range(found["n_layers"])]
        assumed = f"every {FULL_EVERY}th full_attention"
        found["assumed"] = {**settings.assumed, "layer_types": assumed}
    return found


def to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **ALL_OF_THEM,
        **FIXED_OF_NAMES["qwen3"],
        **shared_fields(theirs),
        "num_key_value_heads": theirs.n_kv_groups,
        "head_dim": theirs.head_dim,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rope(theirs.rope_base),
    }


def gemma3_to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **to_ours(theirs),
        "norm_type": "rmsnorm_offset",
        "norm_position": "both",
        "hidden_act": "gelu_pytorch_tanh",
        "scale_embedding": True,
        "attention_scale": theirs.query_pre_attn_scalar**-0.5,
        "sliding_window": theirs.sliding_window,
        "layer_types": theirs.layer_types,
        "rope_parameters": {
            "full_attention": rope(theirs.rope_base),
            "sliding_attention": rope(theirs.rope_local_base),
        },
    }


def rope(base: float) -> Fields:
    return {"rope_type": "default", "rope_theta": float(base)}


FORMATS = (
    PlainFormat(
        name="llms-from-scratch-qwen3",
        remark="the state dict of the Qwen3 of LLMs-from-scratch",
        released="LLMs-from-scratch, its Qwen3",
        rules=rules(QWEN3_BLOCK, QWEN3_NORMS),
        config_to_ours=to_ours,
        our_classes=DECODER,
        reference=Qwen3,
        sizes=partial(sizes, block=QWEN3_BLOCK),
        settings={"rope_base": 1e6, "context_length": 40960, **TOKEN_IDS},
        marks=(f"{QWEN3_BLOCK}.att.q_norm.scale", f"{QWEN3_BLOCK}.ff.fc1.weight"),
        ignored=IGNORED,
    ),
    PlainFormat(
        name="llms-from-scratch-gemma3",
        remark="the state dict of the Gemma 3 of LLMs-from-scratch",
        released="LLMs-from-scratch, its Gemma 3",
        rules=rules(GEMMA3_BLOCK, GEMMA3_NORMS),
        config_to_ours=gemma3_to_ours,
        our_classes=DECODER,
        reference=Gemma3,
        sizes=gemma3_sizes,
        settings={
            "sliding_window": Needed(512),
            "rope_base": 1e6,
            "rope_local_base": 1e4,
            "query_pre_attn_scalar": None,  # the size of a head, but in the release of 27B
            "layer_types": None,  # FULL_EVERY
            "context_length": 32768,
            **TOKEN_IDS,
        },
        marks=(
            f"{GEMMA3_BLOCK}.att.q_norm.scale",
            f"{GEMMA3_BLOCK}.post_feedforward_layernorm.scale",
        ),
        ignored=IGNORED,
    ),
)
