"""Llama, Mistral, Qwen2, Qwen3, and formats that differ from them by a field or two."""

from ...engine.aliases import Config, Fields
from ...engine.field_map import FieldMap
from ...engine.format import (
    BIASES,
    layer_types_of,
    require,
    require_ids,
    require_one_kind_of_layer,
    windows,
    without,
)
from ...engine.rotations import full_rotation
from ..shared import (
    LLAMA_FIXED,
    LLAMA_FIXED_ANY_WINDOW,
    QWEN3_FIXED,
    decoder_format,
    llama_field_map,
)

BIASED = ("attention_bias", "mlp_bias")
NO_NORM_OF_HEADS = {**LLAMA_FIXED_ANY_WINDOW, "qk_norm": False}
UNBIASED = {**NO_NORM_OF_HEADS, **dict.fromkeys(BIASES, False)}
LLAMA = llama_field_map("Llama", *BIASED)
MISTRAL = llama_field_map("Mistral", "sliding_window", fixed=UNBIASED, equal={})
MINISTRAL = llama_field_map("Ministral", fixed=UNBIASED, equal={})
CWM = llama_field_map("CWM", "mlp_bias", fixed=without(UNBIASED, "mlp_bias"), equal={})
QWEN2 = llama_field_map("Qwen2", fixed={**UNBIASED, "attention_bias": True}, equal={})
QWEN3 = llama_field_map("Qwen3", "attention_bias", fixed=QWEN3_FIXED)
SMOLLM3 = llama_field_map("SmolLM3", *BIASED, fixed=NO_NORM_OF_HEADS)
ARCEE = llama_field_map("Arcee", *BIASED, fixed={**LLAMA_FIXED, "mlp_type": "plain"})
SEED_OSS = FieldMap(
    "Seed-OSS",
    {**LLAMA.fields, "attention_out_bias": "attention_output_bias", "residual_dropout": "dropout"},
    LLAMA_FIXED,
    rotation=full_rotation,
)


def mistral_to_ours(theirs: Config) -> Fields:
    require(theirs, "hf_tformer", layer_types=None)  # transformers' Mistral does not read them
    return MISTRAL.to_ours(theirs)


def mistral_to_theirs(ours: Config) -> Fields:
    fields = MISTRAL.to_theirs(ours)
    require_one_kind_of_layer(ours, "Mistral")
    return fields


def windows_to_ours(theirs: Config) -> Fields:
    return {"sliding_window": theirs.sliding_window, "layer_types": theirs.layer_types}


def qwen_windows(ours: Config) -> Fields:
    layer_types = layer_types_of(ours)
    slides = "sliding_attention" in layer_types
    return {
        "use_sliding_window": slides,
        "sliding_window": ours.sliding_window,
        "layer_types": layer_types,
        "max_window_layers": layer_types.index("sliding_attention") if slides else len(layer_types),
    }


def ministral_to_ours(theirs: Config) -> Fields:
    return {**MINISTRAL.to_ours(theirs), **windows_to_ours(theirs)}


def ministral_to_theirs(ours: Config) -> Fields:
    # Its models need a window even where no layer applies it.
    window = ours.sliding_window or ours.max_position_embeddings
    return {**MINISTRAL.to_theirs(ours), **windows(ours), "sliding_window": window}


def cwm_to_ours(theirs: Config) -> Fields:
    return {**CWM.to_ours(theirs), **windows_to_ours(theirs)}


def cwm_to_theirs(ours: Config) -> Fields:
    require_ids(ours, "CWM", "bos_token_id", "eos_token_id")
    return {**CWM.to_theirs(ours), **windows(ours)}


def smollm3_to_ours(theirs: Config) -> Fields:
    if "sliding_attention" in theirs.layer_types:  # else only some backends apply the window
        require(theirs, "hf_tformer", use_sliding_window=True)
    rotated = list(theirs.no_rope_layers[: theirs.num_hidden_layers])
    return {**SMOLLM3.to_ours(theirs), **windows_to_ours(theirs), "no_rope_layers": rotated}


def smollm3_to_theirs(ours: Config) -> Fields:
    return {
        **SMOLLM3.to_theirs(ours),
        "sliding_window": ours.sliding_window,
        "use_sliding_window": ours.sliding_window is not None,
        "layer_types": layer_types_of(ours),
        "no_rope_layers": ours.no_rope_layers or [1] * ours.num_hidden_layers,
    }


FORMATS = (
    decoder_format(
        "llama",
        "Llama",
        LLAMA.to_ours,
        LLAMA.to_theirs,
        "Llama 1, 2, 3, 3.1, 3.2, 3.3, Code Llama, Vicuna, TinyLlama, SmolLM, SmolLM2, Yi",
    ),
    decoder_format(
        "mistral",
        "Mistral",
        mistral_to_ours,
        mistral_to_theirs,
        "Mistral 7B, Mistral Nemo, Mistral Small 3, Codestral, Zephyr",
    ),
    decoder_format(
        "qwen2",
        "Qwen2",
        lambda theirs: {**QWEN2.to_ours(theirs), **windows_to_ours(theirs)},
        lambda ours: {**QWEN2.to_theirs(ours), **qwen_windows(ours)},
        "Qwen1.5, Qwen2, Qwen2.5, QwQ",
    ),
    decoder_format(
        "qwen3",
        "Qwen3",
        lambda theirs: {**QWEN3.to_ours(theirs), **windows_to_ours(theirs)},
        lambda ours: {**QWEN3.to_theirs(ours), **qwen_windows(ours)},
        "Qwen3, without mixtures of experts",
    ),
    decoder_format("smollm3", "SmolLM3", smollm3_to_ours, smollm3_to_theirs, "SmolLM3"),
    decoder_format("arcee", "Arcee", ARCEE.to_ours, ARCEE.to_theirs, "Arcee AFM 4.5B"),
    decoder_format("seed_oss", "SeedOss", SEED_OSS.to_ours, SEED_OSS.to_theirs, "Seed-OSS 36B"),
    decoder_format("cwm", "Cwm", cwm_to_ours, cwm_to_theirs, "Code World Model 32B"),
    decoder_format(
        "ministral", "Ministral", ministral_to_ours, ministral_to_theirs, "Ministral 8B 2410"
    ),
)
