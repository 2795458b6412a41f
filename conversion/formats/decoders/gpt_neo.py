"""GPT-Neo: GPT-2's layers with plain projections, unscaled scores, and windows in some layers."""

from ...engine.aliases import Config, Fields
from ...engine.format import DECODER, Format, carry, inverted, require, whole_heads
from ...engine.rules import Rule, linear
from .gpt2 import FIXED as GPT2_FIXED

OURS, THEIRS = "model.layers.{i}", "transformer.h.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    Rule("model.positions.weight", "transformer.wpe.weight"),
    *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.ln_1"),
    *(
        Rule(f"{OURS}.self_attn.{x}_proj.weight", f"{THEIRS}.attn.attention.{x}_proj.weight")
        for x in "qkv"
    ),
    *linear(f"{OURS}.self_attn.o_proj", f"{THEIRS}.attn.attention.out_proj"),
    *linear(f"{OURS}.mlp_norm", f"{THEIRS}.ln_2"),
    *linear(f"{OURS}.mlp.up_proj", f"{THEIRS}.mlp.c_fc"),
    *linear(f"{OURS}.mlp.down_proj", f"{THEIRS}.mlp.c_proj"),
    *linear("model.norm", "transformer.ln_f"),
    Rule("lm_head.weight", "lm_head.weight"),
)
IGNORED = {
    f"{THEIRS}.attn.attention.bias": "the causal mask, which old checkpoints hold",
    f"{THEIRS}.attn.attention.masked_bias": "the score of a hidden key, which old checkpoints hold",
}

# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "max_position_embeddings": "max_position_embeddings",
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
}
FIXED = {
    **{name: value for name, value in GPT2_FIXED.items() if name != "sliding_window"},
    "attention_bias": False,
    "attention_scale": 1.0,
}
KINDS = {"global": "full_attention", "local": "sliding_attention"}  # theirs → ours


def to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "num_key_value_heads": theirs.num_heads,
        "intermediate_size": theirs.intermediate_size or 4 * theirs.hidden_size,
        "sliding_window": theirs.window_size if "local" in theirs.attention_layers else None,
        "layer_types": [KINDS[kind] for kind in theirs.attention_layers],
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "GPT-Neo", **FIXED)
    whole_heads(ours, "GPT-Neo")
    return {
        **carry(ours, inverted(FIELDS)),
        **windows(ours),
        "embed_dropout": ours.dropout,
        "intermediate_size": ours.intermediate_size,
    }


def windows(ours: Config) -> Fields:
    """Their pattern of kinds and how often it repeats, said as shortly as it can be."""
    names = inverted(KINDS)
    kinds = getattr(ours, "layer_types", ["full_attention"] * ours.num_hidden_layers)
    layers = [names[kind] for kind in kinds]
    whole = [n for n in range(1, len(layers) + 1) if len(layers) % n == 0]
    pattern = next(layers[:n] for n in whole if layers[:n] * (len(layers) // n) == layers)
    fields = {"attention_types": [[pattern, len(layers) // len(pattern)]]}
    return fields if ours.sliding_window is None else {**fields, "window_size": ours.sliding_window}


FORMATS = (
    Format(
        "gpt_neo",
        RULES,
        to_ours,
        to_theirs,
        ("GPTNeoConfig", "GPTNeoForCausalLM"),
        DECODER,
        IGNORED,
        released="GPT-Neo 125M to 2.7B, TinyStories",
    ),
)
