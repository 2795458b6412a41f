"""GPT-J: attention beside the MLP behind one norm; neighbours turn in a part of each head."""

import math
from types import SimpleNamespace

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.format import (
    DECODER,
    Format,
    carry,
    inverted,
    plain_attention_scale,
    require,
    whole_heads,
)
from ...engine.rules import Rule, linear
from ...engine.transforms import RotaryPairs
from .glm import KEYS, QUERIES
from .gpt2 import FIELDS, IGNORED, OURS, THEIRS
from .gpt2 import FIXED as GPT2_FIXED

RULES = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.ln_1"),
    Rule(f"{OURS}.self_attn.q_proj.weight", f"{THEIRS}.attn.q_proj.weight", QUERIES),
    Rule(f"{OURS}.self_attn.k_proj.weight", f"{THEIRS}.attn.k_proj.weight", KEYS),
    Rule(f"{OURS}.self_attn.v_proj.weight", f"{THEIRS}.attn.v_proj.weight"),
    Rule(f"{OURS}.self_attn.o_proj.weight", f"{THEIRS}.attn.out_proj.weight"),
    *linear(f"{OURS}.mlp.up_proj", f"{THEIRS}.mlp.fc_in"),
    *linear(f"{OURS}.mlp.down_proj", f"{THEIRS}.mlp.fc_out"),
    *linear("model.norm", "transformer.ln_f"),
    *linear("lm_head", "lm_head"),
)
FIXED = {
    **GPT2_FIXED,
    "position_embedding_type": "rotary",
    "parallel_residual": "shared",
    "attention_bias": False,
    "attention_output_bias": False,
    "lm_head_bias": True,
}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}  # of all models; no field says so


def to_ours(theirs: Config) -> Fields:
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "num_key_value_heads": theirs.n_head,
        "intermediate_size": theirs.n_inner or 4 * theirs.n_embd,
        "rope_parameters": {**ROPE, "partial_rotary_factor": turned_part(theirs)},
    }


def turned_part(theirs: Config) -> float:
    """What the rotation of theirs turns, as a part of a head that gives back the same number."""
    width, head = theirs.rotary_dim, theirs.n_embd // theirs.n_head
    if width % 2 or not 2 <= width <= head:
        raise ConversionError(
            f"rotary_dim is {width}, but pairs turn within heads of {head}: choose an even number "
            f"from 2 to {head}"
        )
    part = width / head
    return part if int(part * head) == width else math.nextafter(part, 1.0)


def to_theirs(ours: Config) -> Fields:
    require(ours, "GPT-J", **FIXED)
    require(SimpleNamespace(**ours.rope_parameters), "GPT-J", **ROPE)
    whole_heads(ours, "GPT-J")
    plain_attention_scale(ours, "GPT-J")
    return {
        **carry(ours, inverted(FIELDS)),
        "embd_pdrop": ours.dropout,
        "n_inner": ours.intermediate_size,
        "rotary_dim": RotaryPairs.width(ours),
    }


FORMATS = (
    Format(
        "gptj",
        RULES,
        to_ours,
        to_theirs,
        ("GPTJConfig", "GPTJForCausalLM"),
        DECODER,
        IGNORED,
        released="GPT-J 6B",
    ),
)
