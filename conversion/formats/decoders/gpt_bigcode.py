"""GPT-BigCode (SantaCoder, StarCoder): GPT-2 with plain projections, mostly with one key head."""

from ...engine.aliases import Config, Fields
from ...engine.format import DECODER, Format, carry, inverted, plain_attention_scale, require
from ...engine.rules import Rule, linear
from ...engine.transforms import InterleavedHeads
from .gpt2 import FIELDS, FIXED, IGNORED, OURS, THEIRS

RULES = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    Rule("model.positions.weight", "transformer.wpe.weight"),
    *linear(f"{OURS}.self_attn_norm", f"{THEIRS}.ln_1"),
    # One head of keys follows all queries; many stand beside the query that they belong to.
    *(
        Rule(
            tuple(f"{OURS}.self_attn.{x}_proj.{kind}" for x in "qkv"),
            f"{THEIRS}.attn.c_attn.{kind}",
            InterleavedHeads(),
        )
        for kind in ("weight", "bias")
    ),
    *linear(f"{OURS}.self_attn.o_proj", f"{THEIRS}.attn.c_proj"),
    *linear(f"{OURS}.mlp_norm", f"{THEIRS}.ln_2"),
    *linear(f"{OURS}.mlp.up_proj", f"{THEIRS}.mlp.c_fc"),
    *linear(f"{OURS}.mlp.down_proj", f"{THEIRS}.mlp.c_proj"),
    *linear("model.norm", "transformer.ln_f"),
    Rule("lm_head.weight", "lm_head.weight"),
)


def to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", add_cross_attention=False)
    return {
        **carry(theirs, FIELDS),
        **FIXED,
        "num_key_value_heads": 1 if theirs.multi_query else theirs.n_head,
        "intermediate_size": theirs.n_inner or 4 * theirs.n_embd,
        "attention_scale": None if theirs.scale_attn_weights else 1.0,
    }


def to_theirs(ours: Config) -> Fields:
    require(ours, "GPT-BigCode", **FIXED, head_dim=ours.hidden_size / ours.num_attention_heads)
    has_one_head_of_keys = ours.num_key_value_heads == 1
    if not has_one_head_of_keys:
        require(ours, "GPT-BigCode", num_key_value_heads=ours.num_attention_heads)
    is_unscaled = ours.attention_scale == 1.0
    if not is_unscaled:
        plain_attention_scale(ours, "GPT-BigCode")
    return {
        **carry(ours, inverted(FIELDS)),
        "embd_pdrop": ours.dropout,
        "n_inner": ours.intermediate_size,
        "multi_query": has_one_head_of_keys,
        "scale_attn_weights": not is_unscaled,
    }


FORMATS = (
    Format(
        "gpt_bigcode",
        RULES,
        to_ours,
        to_theirs,
        ("GPTBigCodeConfig", "GPTBigCodeForCausalLM"),
        DECODER,
        IGNORED,
        released="StarCoder, StarCoderBase, SantaCoder",
    ),
)
