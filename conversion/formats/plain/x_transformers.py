"""x-transformers: the state dict of a TransformerWrapper around a Decoder or an Encoder.

Nothing in the file says which of both it is, so --format does. Options that have tensors are found
by their names, and refused where ours has no place for them; others are settings here.
"""

from functools import partial
from types import SimpleNamespace

import torch

import hf_tformer

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.errors import ConversionError
from ...engine.format import DECODER, carry, require_one_of
from ...engine.models import Library
from ...engine.plain import TOKEN_IDS, PlainFormat, count
from ...engine.rules import Rule, as_tuple, linear, matches
from ...engine.transforms import SAME, Affine, Chain, ModuloHeads, Split, Transform, Zeros
from ...references.x_transformers import XTransformers
from ..shared import LAYER, NEIGHBOURS

LAYERS = "attn_layers.layers"
ATTENTION, MLP = f"{LAYERS}.{{2i}}", f"{LAYERS}.{{2i+1}}"
INV_FREQ = "attn_layers.rotary_pos_emb.inv_freq"
BUCKETS = "attn_layers.rel_pos.relative_attention_bias.weight"
# Where a layer has norms: before its block, behind it, behind the sum.
POSITIONS = {"0": "pre", "01": "both", "2": "post"}
OUR_NORMS = {"0": ("self_attn_norm", "mlp_norm"), "1": ("self_attn_output", "mlp_output")}
OUR_NORMS["2"] = OUR_NORMS["0"]
EPSILON = 1e-20  # theirs divides by the norm, without an epsilon that counts
SETTINGS = {
    "attn_dim_head": 64,
    "activation": "gelu",
    "norm_add_unit_offset": None,  # told by the mean of the weights
    "rotary_interpolation_factor": 1.0,
    "tie_embedding_scale": None,  # 1 / sqrt(dim)
    "max_seq_len": None,  # the length of the table, or a choice
    **TOKEN_IDS,
}
OF_DECODERS = {"alibi_pos_bias": False, "attn_max_attend_past": None}


def rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    pairs = NEIGHBOURS if theirs.rotary_emb_dim else {}
    queries = Chain(pairs.get("q", SAME), ModuloHeads())
    return (
        Rule("model.embed_tokens.weight", "token_emb.emb.weight"),
        Rule("model.positions.weight", "pos_emb.emb.weight", Affine(theirs.dim**-0.5)),
        Rule("model.score_bias.table.weight", BUCKETS, Affine(theirs.attn_dim_head**0.5)),
        Rule(f"{LAYER}.self_attn.q_proj.weight", f"{ATTENTION}.1.to_q.weight", queries),
        Rule(
            f"{LAYER}.self_attn.k_proj.weight", f"{ATTENTION}.1.to_k.weight", pairs.get("k", SAME)
        ),
        Rule(f"{LAYER}.self_attn.v_proj.weight", f"{ATTENTION}.1.to_v.weight"),
        Rule(f"{LAYER}.self_attn.o_proj.weight", f"{ATTENTION}.1.to_out.weight", ModuloHeads(1)),
        *mlp_rules(theirs),
        *norm_rules(theirs),
        Rule("lm_head.weight", "to_logits.weight"),
    )


def mlp_rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    down = linear(f"{LAYER}.mlp.down_proj", f"{MLP}.1.ff.2")
    if not theirs.ff_glu:
        return (*linear(f"{LAYER}.mlp.up_proj", f"{MLP}.1.ff.0.0"), *down)
    if not theirs.ff_bias:  # theirs has one for the gate in any case
        down = (down[0], Rule(f"{LAYER}.mlp.down_proj.bias", (), Zeros("hidden_size")))
    halves = tuple(
        Rule(
            (f"{LAYER}.mlp.up_proj.{kind}", f"{LAYER}.mlp.gate_proj.{kind}"),
            f"{MLP}.1.ff.0.proj.{kind}",
            Split(2),
        )
        for kind in ("weight", "bias")
    )
    return (*halves, *down)


def norm_rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    is_offset = theirs.norm_add_unit_offset and theirs.norm == "gamma"
    change: Transform = Affine(number=1.0) if is_offset else SAME
    places = next(places for places, name in POSITIONS.items() if name == theirs.norm_position)
    return (
        *(
            Rule(f"{LAYER}.{ours}.weight", f"{block}.0.{place}.{theirs.norm}", change)
            for place in places
            for ours, block in zip(OUR_NORMS[place], (ATTENTION, MLP), strict=True)
        ),
        Rule("model.norm.weight", f"attn_layers.final_norm.{theirs.norm}", change),
        Rule("model.embed_norm.weight", "post_emb_norm.gamma"),
    )


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace, causal: bool) -> Fields:
    names = set(checkpoint.names())
    if not names >= {f"{LAYERS}.0.1.to_q.weight", f"{LAYERS}.1.1.ff.2.weight"}:
        raise ConversionError(
            "the file does not hold attention (0.1.to_q) and MLP (1.1.ff.2) in turns, as it does "
            "without cross_attend, macaron and the like: train without them, or begin with "
            "`tformer new`"
        )
    num_tokens, dim = checkpoint.shape("token_emb.emb.weight")
    depth = count(checkpoint, f"{ATTENTION}.1.to_q.weight")
    rows = checkpoint.shape(f"{LAYERS}.0.1.to_q.weight")[0]
    size, has_positions = settings.attn_dim_head, "pos_emb.emb.weight" in names
    ff_glu = f"{LAYERS}.1.1.ff.0.proj.weight" in names
    found = {
        **{name: usual for name, usual in OF_DECODERS.items() if not hasattr(settings, name)},
        "causal": causal,
        "num_tokens": num_tokens,
        "dim": dim,
        "depth": depth,
        "heads": of_heads(rows, size),
        "kv_heads": of_heads(checkpoint.shape(f"{LAYERS}.0.1.to_k.weight")[0], size),
        "inner": checkpoint.shape(f"{LAYERS}.1.1.ff.2.weight")[1],
        "ff_glu": ff_glu,
        "ff_bias": f"{LAYERS}.1.1.ff.2.bias" in names,
        "has_positions": has_positions,
        "has_final_norm": any(name.startswith("attn_layers.final_norm.") for name in names),
        "post_emb_norm": "post_emb_norm.gamma" in names,
        "rel_pos_bias": BUCKETS in names and not causal,
        "tied": "to_logits.weight" not in names,
        "tie_embedding_scale": settings.tie_embedding_scale or dim**-0.5,
        **norms_in(checkpoint, settings),
        **rotation_in(checkpoint),
    }
    if has_positions:
        found["max_seq_len"] = checkpoint.shape("pos_emb.emb.weight")[0]
    elif settings.max_seq_len is None:
        found["max_seq_len"] = 2048
    refuse_options(names, SimpleNamespace(**{**vars(settings), **found}))
    return found


def of_heads(rows: int, size: int) -> int:
    if size < 1 or rows % size:
        raise ConversionError(
            f"attn_dim_head is {size}, which does not divide the {rows} rows of queries or keys: "
            "give the size of a head with --set attn_dim_head=32"
        )
    return rows // size


def norms_in(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    """Return the kind of the norms, where they stand, and whether one is added to their weights."""
    first = f"{LAYERS}.0.0."
    found = sorted(n.removeprefix(first) for n in checkpoint.names() if n.startswith(first))
    places, kinds = "".join(name[0] for name in found), {name[2:] for name in found}
    if places not in POSITIONS or kinds not in ({"g"}, {"gamma"}):
        raise ConversionError(
            f"the norms of the first layer are {found}, but hf_tformer has LayerNorm (gamma) and "
            "RMSNorm (g) at 0, at 0 and 1, or at 2: begin with `tformer new`"
        )
    weights = checkpoint.read(first + found[0])
    if weights.numel() == 1:
        raise ConversionError(
            f"{first}{found[0]} is one number, as in ScaleNorm, which hf_tformer cannot express: "
            "begin with `tformer new`"
        )
    fields: Fields = {"norm": kinds.pop(), "norm_position": POSITIONS[places]}
    if settings.norm_add_unit_offset is None:
        fields["norm_add_unit_offset"] = is_offset = bool(weights.float().mean() < 0.5)
        fields["assumed"] = {**settings.assumed, "norm_add_unit_offset": is_offset}
    return fields


def rotation_in(checkpoint: Checkpoint) -> Fields:
    """Return how much of a head rotates, and the base, which the frequencies of the file give."""
    if INV_FREQ not in checkpoint.names():
        return {"rotary_emb_dim": 0, "rotary_base": 10000.0}
    frequencies = checkpoint.read(INV_FREQ).double()
    size = 2 * len(frequencies)
    base = float(f"{frequencies[-1].item() ** (-size / (size - 2)):.5g}") if size > 2 else 10000.0
    if not torch.allclose(frequencies, base ** -(torch.arange(0, size, 2) / size).double(), 1e-3):
        raise ConversionError(f"{INV_FREQ} are no powers of one base, as rotations have them here")
    return {"rotary_emb_dim": size, "rotary_base": base}


def refuse_options(names: set[str], theirs: SimpleNamespace) -> None:
    known = {name for rule in rules(theirs) for name in as_tuple(rule.theirs)} | {INV_FREQ}
    if theirs.causal:  # ours has one bias by distance there, ALiBi
        known.discard(BUCKETS)
    for name in sorted(names):
        if not any(matches(pattern, name) for pattern in known):
            raise ConversionError(
                f"the file holds {name}, an option of x-transformers that hf_tformer cannot "
                "express: train without it, or begin with `tformer new` and write it there"
            )
    require_one_of(theirs, "hf_tformer", activation=("gelu", "silu", "relu2"))
    if f"{LAYERS}.0.1.to_out.weight" not in names:
        raise ConversionError("heads is 1, where x-transformers has no to_out: train with two")
    if (theirs.alibi_pos_bias or theirs.rel_pos_bias) and 1 < theirs.kv_heads < theirs.heads:
        raise ConversionError(
            f"kv_heads is {theirs.kv_heads} of {theirs.heads}, whose queries hf_tformer orders "
            "differently, and biases belong to their places: train without bias, or one key head"
        )
    if theirs.post_emb_norm:
        require_one_of(theirs, "hf_tformer", norm=("gamma",))


# theirs → ours
FIELDS = {
    "num_tokens": "vocab_size",
    "dim": "hidden_size",
    "inner": "intermediate_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "attn_dim_head": "head_dim",
    "max_seq_len": "max_position_embeddings",
    "activation": "hidden_act",
    "norm_position": "norm_position",
    "has_final_norm": "final_norm",
    "post_emb_norm": "embedding_norm",
    "tied": "tie_word_embeddings",
    **{name: name for name in TOKEN_IDS},
}


def to_ours(theirs: SimpleNamespace) -> Fields:
    has_bias, is_rms = theirs.ff_glu or theirs.ff_bias, theirs.norm == "g"
    rms_norm = "rmsnorm_offset" if theirs.norm_add_unit_offset else "rmsnorm"
    kind = "rotary" if theirs.rotary_emb_dim else "learned" if theirs.has_positions else "none"
    return {
        **carry(theirs, FIELDS),
        "position_embedding_type": kind,
        **({"rope_parameters": rope_of(theirs)} if kind == "rotary" else {}),
        "norm_type": rms_norm if is_rms else "layernorm_unbiased",
        **({"rms_norm_eps": EPSILON} if is_rms else {"layer_norm_eps": 1e-5}),
        "qk_norm": False,
        "mlp_type": "gated" if theirs.ff_glu else "plain",
        "attention_bias": False,
        "attention_output_bias": False,
        "mlp_bias": has_bias,
        "lm_head_bias": False,
    }


def rope_of(theirs: SimpleNamespace) -> Fields:
    rope: Fields = {"rope_type": "default", "rope_theta": theirs.rotary_base}
    rope["partial_rotary_factor"] = theirs.rotary_emb_dim / theirs.attn_dim_head
    if theirs.rotary_interpolation_factor == 1:
        return rope
    return {**rope, "rope_type": "linear", "factor": theirs.rotary_interpolation_factor}


def decoder_to_ours(theirs: SimpleNamespace) -> Fields:
    past = theirs.attn_max_attend_past
    return {
        **to_ours(theirs),
        "score_bias": "alibi" if theirs.alibi_pos_bias else None,
        "sliding_window": None if past is None else past + 1,
        "logit_scale": theirs.tie_embedding_scale if theirs.tied else 1.0,
    }


def encoder_to_ours(theirs: SimpleNamespace) -> Fields:
    require_one_of(theirs, "the encoder of hf_tformer", tied=(False,))  # its logits have no scale
    return {
        **to_ours(theirs),
        "score_bias": "relative" if theirs.rel_pos_bias else None,
        "sliding_window": None,
        "head_act": None,
    }


WITHOUT = "without options that leave no tensor (shift_tokens, residual_attn, attn_qk_norm)"
MASKED_LM = Library(hf_tformer, "TformerEncoderConfig", "TformerEncoderForMaskedLM", True)
x_transformers = partial(
    PlainFormat,
    rules=rules,
    reference=XTransformers,
    marks=("token_emb.emb.weight", f"{LAYERS}.{{i}}.1.to_q.weight"),
    ignored={INV_FREQ: "computed from rope_parameters"},
)
FORMATS = (
    x_transformers(
        name="x-transformers",
        remark=f"the state dict of a TransformerWrapper around a Decoder, {WITHOUT}",
        released="x-transformers, its decoders",
        config_to_ours=decoder_to_ours,
        our_classes=DECODER,
        sizes=partial(sizes, causal=True),
        settings={**SETTINGS, **OF_DECODERS},
    ),
    x_transformers(
        name="x-transformers-encoder",
        remark=f"the state dict of a TransformerWrapper around an Encoder, {WITHOUT}",
        released="x-transformers, its encoders with logits for each token",
        config_to_ours=encoder_to_ours,
        our_classes=MASKED_LM,
        sizes=partial(sizes, causal=False),
        settings=SETTINGS,
    ),
)
