"""GPT-2, GPT-BigCode (StarCoder), GPT-Neo, GPT-J and CodeGen: layers of the same names.

GPT-2's projections are transposed, with query, key and value in one tensor. GPT-BigCode mostly has
one head of keys. GPT-Neo does not scale its scores and has windows in some layers. GPT-J computes
attention beside the MLP and rotates a part of each head. CodeGen is GPT-J with its queries, keys
and values in one tensor.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import torch
from transformers import PreTrainedConfig

from ...engine.aliases import Config, Fields
from ...engine.errors import ConversionError
from ...engine.field_map import FieldMap
from ...engine.format import inverted, layer_types_of, plain_attention_scale, require, without
from ...engine.rules import Rule, fused, linear, linears, omitted, weights
from ...engine.transforms import InterleavedHeads, RotaryPairs, Split, Tensors, Transpose
from ..shared import (
    COMMON_FIELDS,
    GPT2_ENDS,
    GPT2_FIXED,
    GPT2_LAYER,
    GPT2_NORMS,
    HEAD,
    LAYER,
    NEIGHBOURS,
    NO_GROUPS,
    QKV,
    causal_masks,
    decoder_format,
)

MLP = {"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}
MODULES = {"self_attn.o_proj": "attn.c_proj", **MLP}
OURS_OF_FUSED = tuple(f"{LAYER}.{name}" for name in QKV)
FUSED = f"{GPT2_LAYER}.attn.c_attn"
AROUND = (
    *GPT2_ENDS,
    Rule("model.positions.weight", "transformer.wpe.weight"),
    *linears(LAYER, GPT2_LAYER, GPT2_NORMS),
    HEAD,
)
GPT2_RULES = (
    *AROUND,
    *fused(OURS_OF_FUSED, FUSED, Split(3, transposed=True), bias=Split(3)),
    *linears(LAYER, GPT2_LAYER, MODULES, Transpose()),
)
BIGCODE_RULES = (
    *AROUND,
    # A single head of keys follows all queries; several stand beside the queries they belong to.
    *fused(OURS_OF_FUSED, FUSED, InterleavedHeads()),
    *linears(LAYER, GPT2_LAYER, MODULES),
)
NEO_RULES = (
    *AROUND,
    *weights(LAYER, GPT2_LAYER, {f"self_attn.{x}_proj": f"attn.attention.{x}_proj" for x in "qkv"}),
    *linears(LAYER, GPT2_LAYER, {"self_attn.o_proj": "attn.attention.out_proj", **MLP}),
)
GPTJ_RULES = (
    *GPT2_ENDS,
    *linear(f"{LAYER}.self_attn_norm", f"{GPT2_LAYER}.ln_1"),
    *(
        Rule(f"{LAYER}.self_attn.{x}_proj.weight", f"{GPT2_LAYER}.attn.{x}_proj.weight", pairs)
        for x, pairs in NEIGHBOURS.items()
    ),
    *weights(
        LAYER, GPT2_LAYER, {"self_attn.v_proj": "attn.v_proj", "self_attn.o_proj": "attn.out_proj"}
    ),
    *linears(LAYER, GPT2_LAYER, {"mlp.up_proj": "mlp.fc_in", "mlp.down_proj": "mlp.fc_out"}),
    *linear("lm_head", "lm_head"),
)


class FourParts:
    """Split CodeGen's rows: four parts, each with some heads' queries, values and keys."""

    PARTS, PAIRS = 4, RotaryPairs("num_attention_heads")

    def forward(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        (fused,) = tensors
        parts = fused.unflatten(0, (self.PARTS, 3, -1)).transpose(0, 1)
        query, value, key = (part.flatten(0, 1) for part in parts)
        return (*self.PAIRS.forward((query, key), config), value)

    def inverse(self, tensors: Tensors, config: PreTrainedConfig) -> Tensors:
        query, key = self.PAIRS.inverse(tensors[:2], config)
        rows = (x.unflatten(0, (self.PARTS, -1)) for x in (query, tensors[2], key))
        return (torch.stack(tuple(rows), dim=1).flatten(0, 2),)


CODEGEN_RULES = (
    *omitted(GPTJ_RULES, *(f"{name}.weight" for name in OURS_OF_FUSED)),
    Rule(
        tuple(f"{name}.weight" for name in OURS_OF_FUSED),
        f"{GPT2_LAYER}.attn.qkv_proj.weight",
        FourParts(),
    ),
)
IGNORED = causal_masks(f"{GPT2_LAYER}.attn")

GPT2_FIELDS = {
    **COMMON_FIELDS,
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "initializer_range": "initializer_range",
}
GPT2 = FieldMap("GPT-2", GPT2_FIELDS, GPT2_FIXED, NO_GROUPS, has_head_dim=False, checks_scale=False)
BIGCODE = replace(GPT2, format_name="GPT-BigCode", equal={})
NEO = FieldMap(
    "GPT-Neo",
    {
        **COMMON_FIELDS,
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "max_position_embeddings": "max_position_embeddings",
        "activation_function": "hidden_act",
        "layer_norm_epsilon": "layer_norm_eps",
        "resid_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "initializer_range": "initializer_range",
    },
    {**without(GPT2_FIXED, "sliding_window"), "attention_bias": False, "attention_scale": 1.0},
    NO_GROUPS,
    has_head_dim=False,
    checks_scale=False,
)
GPTJ = FieldMap(
    "GPT-J",
    GPT2_FIELDS,
    {
        **GPT2_FIXED,
        "position_embedding_type": "rotary",
        "parallel_residual": "shared",
        "attention_bias": False,
        "attention_output_bias": False,
        "lm_head_bias": True,
    },
    NO_GROUPS,
    has_head_dim=False,
)
CODEGEN = replace(GPTJ, format_name="CodeGen", fields=without(GPT2_FIELDS, "pad_token_id"))


def gpt2_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return scaled_to_ours(theirs, GPT2)


def scaled_to_ours(theirs: Config, fields: FieldMap) -> Fields:
    return {
        **fields.to_ours(theirs),
        "intermediate_size": theirs.n_inner or 4 * theirs.n_embd,
        "attention_scale": None if theirs.scale_attn_weights else 1.0,
    }


def scaled_to_theirs(ours: Config, fields: FieldMap) -> Fields:
    theirs = fields.to_theirs(ours)
    is_unscaled = ours.attention_scale == 1.0
    if not is_unscaled:
        plain_attention_scale(ours, fields.format_name)
    return {
        **theirs,
        "embd_pdrop": ours.dropout,
        "n_inner": ours.intermediate_size,
        "scale_attn_weights": not is_unscaled,
    }


def bigcode_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", add_cross_attention=False)
    key_heads = 1 if theirs.multi_query else theirs.n_head
    return {**scaled_to_ours(theirs, BIGCODE), "num_key_value_heads": key_heads}


def bigcode_to_theirs(ours: Config) -> Fields:
    fields = scaled_to_theirs(ours, BIGCODE)
    has_one_head_of_keys = ours.num_key_value_heads == 1
    if not has_one_head_of_keys:
        require(ours, "GPT-BigCode", num_key_value_heads=ours.num_attention_heads)
    return {**fields, "multi_query": has_one_head_of_keys}


KINDS = {"global": "full_attention", "local": "sliding_attention"}  # theirs → ours


def neo_to_ours(theirs: Config) -> Fields:
    return {
        **NEO.to_ours(theirs),
        "intermediate_size": theirs.intermediate_size or 4 * theirs.hidden_size,
        "sliding_window": theirs.window_size if "local" in theirs.attention_layers else None,
        "layer_types": [KINDS[kind] for kind in theirs.attention_layers],
    }


def neo_to_theirs(ours: Config) -> Fields:
    fields = {
        **NEO.to_theirs(ours),
        "attention_types": repeated([inverted(KINDS)[kind] for kind in layer_types_of(ours)]),
        "embed_dropout": ours.dropout,
        "intermediate_size": ours.intermediate_size,
    }
    return fields if ours.sliding_window is None else {**fields, "window_size": ours.sliding_window}


def repeated(layers: list[str]) -> list[list[object]]:
    """Return the shortest pattern of kinds of layers, and how often it repeats."""
    whole = [n for n in range(1, len(layers) + 1) if len(layers) % n == 0]
    pattern = next(layers[:n] for n in whole if layers[:n] * (len(layers) // n) == layers)
    return [[pattern, len(layers) // len(pattern)]]


ROPE = {"rope_type": "default", "rope_theta": 10000.0}  # of all GPT-J models; there is no field


def gptj_to_ours(theirs: Config, fields: FieldMap = GPTJ) -> Fields:
    return {
        **fields.to_ours(theirs),
        "intermediate_size": theirs.n_inner or 4 * theirs.n_embd,
        "rope_parameters": {**ROPE, "partial_rotary_factor": rotated_part(theirs)},
    }


def rotated_part(theirs: Config) -> float:
    """Return the part of a head that rotates, such that it gives back the same rotary_dim."""
    width, head = theirs.rotary_dim, theirs.n_embd // theirs.n_head
    if width % 2 or not 2 <= width <= head:
        raise ConversionError(
            f"rotary_dim is {width}, but pairs rotate within heads of {head}: choose an even "
            f"number from 2 to {head}"
        )
    part = width / head
    return part if int(part * head) == width else math.nextafter(part, 1.0)


def gptj_to_theirs(ours: Config, fields: FieldMap = GPTJ) -> Fields:
    theirs = fields.to_theirs(ours)
    require(SimpleNamespace(**ours.rope_parameters), fields.format_name, **ROPE)
    return {
        **theirs,
        "embd_pdrop": ours.dropout,
        "n_inner": ours.intermediate_size,
        "rotary_dim": RotaryPairs.width(ours),
    }


def refuse_other_heads(config: Config) -> None:
    if config.num_attention_heads % FourParts.PARTS:
        raise ConversionError(
            f"num_attention_heads is {config.num_attention_heads}, which CodeGen divides among "
            f"{FourParts.PARTS} parts of its projection: choose a multiple of {FourParts.PARTS}"
        )


def codegen_to_ours(theirs: Config) -> Fields:
    refuse_other_heads(theirs)
    pad = getattr(theirs, "pad_token_id", None)  # for which its class has no field
    return {**gptj_to_ours(theirs, CODEGEN), "pad_token_id": pad}


def codegen_to_theirs(ours: Config) -> Fields:
    refuse_other_heads(ours)
    return {**gptj_to_theirs(ours, CODEGEN), "pad_token_id": ours.pad_token_id}


FORMATS = (
    decoder_format(
        "gpt2",
        "GPT2",
        gpt2_to_ours,
        lambda ours: scaled_to_theirs(ours, GPT2),
        "GPT-2, DistilGPT2, DialoGPT",
        GPT2_RULES,
        IGNORED,
        head="LMHeadModel",
    ),
    decoder_format(
        "gpt_neo",
        "GPTNeo",
        neo_to_ours,
        neo_to_theirs,
        "GPT-Neo 125M to 2.7B, TinyStories",
        NEO_RULES,
        causal_masks(f"{GPT2_LAYER}.attn.attention"),
    ),
    decoder_format(
        "gpt_bigcode",
        "GPTBigCode",
        bigcode_to_ours,
        bigcode_to_theirs,
        "StarCoder, StarCoderBase, SantaCoder",
        BIGCODE_RULES,
        IGNORED,
    ),
    decoder_format("gptj", "GPTJ", gptj_to_ours, gptj_to_theirs, "GPT-J 6B", GPTJ_RULES, IGNORED),
    decoder_format(
        "codegen",
        "CodeGen",
        codegen_to_ours,
        codegen_to_theirs,
        "CodeGen 350M to 16B, CodeGen2",
        CODEGEN_RULES,
        {**IGNORED, f"{GPT2_LAYER}.attn.causal_mask": "the causal mask, which files hold"},
    ),
)
