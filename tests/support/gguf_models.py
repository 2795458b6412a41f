"""A configuration of ours for each architecture of llama.cpp, and what is drawn around it."""

import random
from copy import deepcopy

import torch

from conversion.engine.format import DECODER
from conversion.engine.registry import FORMATS
from conversion.engine.translation import translate
from conversion.runtimes.gguf.architectures import ARCHITECTURES
from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM
from support.converting import CASES as DECODERS_AND_PAIRS
from support.parity import randomise

DECODERS = sorted(one.format for one in ARCHITECTURES if FORMATS[one.format].our_classes == DECODER)
SMALL = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "eos_token_id": 0,
    "bos_token_id": None,
}

# Where another case than that of its name has the fields of a format.
CASES = {
    "llama": "llama grouped-query",
    "mistral": "mistral no window",
    "phi3": "phi3 partial rotation",
    "olmo2": "olmo2 biases",
    "gemma": "gemma biases",
    "gemma3_text": "gemma3 biases",
    "starcoder2": "starcoder2 sliding window",
    "gpt_bigcode": "gpt_bigcode one key head",
    "stablelm": "stablelm partial yarn",
    "falcon": "falcon 11b",
    "cohere": "cohere biases",
    "granite": "granite biases",
    "smollm3": "smollm3 windows",
    "arcee": "arcee biases",
    "ernie4_5": "ernie biases",
}
FULL, SLIDING = "full_attention", "sliding_attention"
NO_BIASES = {"attention_bias": False, "attention_output_bias": False, "mlp_bias": False}


def windows(period):
    layers = period + 1
    kinds = [FULL if (i + 1) % period == 0 else SLIDING for i in range(layers)]
    return {"num_hidden_layers": layers, "layer_types": kinds, "sliding_window": 5}


def turning(*kinds):
    return {
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 500.0} for kind in kinds}
    }


# What an architecture asks for, and the case does not have.
FITTING = {
    "gemma": NO_BIASES,
    "gemma2": {**NO_BIASES, **windows(2), "attention_scale": None},
    "gemma3_text": {
        **NO_BIASES,
        **windows(6),
        "attention_scale": None,
        "rope_parameters": {
            FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
            SLIDING: {"rope_type": "default", "rope_theta": 50.0},
        },
    },
    "olmo2": {**NO_BIASES, "tie_word_embeddings": False},
    "olmo3": {**NO_BIASES, **windows(4), **turning(FULL, SLIDING)},
    "starcoder2": {"sliding_window": None, **dict.fromkeys(NO_BIASES, True)},
    "cohere": NO_BIASES,
    "cohere2": {**windows(4), "tie_word_embeddings": True, "no_rope_layers": [1, 1, 1, 0, 1]},
    "smollm3": {
        **NO_BIASES,
        "num_hidden_layers": 5,
        "no_rope_layers": [1, 1, 1, 0, 1],
        "sliding_window": None,
    },
    "exaone4": {"sliding_window": None},
    "arcee": NO_BIASES,
    "gpt_neox": {"num_key_value_heads": 6},
}
SQUARE = {"hidden_size": 48, "num_attention_heads": 6, "head_dim": 8, "num_key_value_heads": 3}
DRAWN = {
    "tie_word_embeddings": (True, False),
    "attention_bias": (True, False),
    "attention_output_bias": (True, False),
    "mlp_bias": (True, False),
    "num_key_value_heads": (6, 3, 1),
    "head_dim": (8, 10, 12),
    "parallel_residual": (None, "own", "shared"),
    "hidden_act": ("silu", "gelu", "gelu_new", "relu"),
    "sliding_window": (None, 5, 4096),
}
SCALINGS = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 8},
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    },
    "dynamic": {"factor": 4.0},
}


def decoder_fields(form, vocab_size):
    """What ours says of a model that its architecture computes."""
    case = DECODERS_AND_PAIRS[CASES.get(form, form)]
    theirs = case.their_classes[0](**deepcopy({**case.both, **case.theirs}))
    ours = translate(theirs, FORMATS[form], to_ours=True, dtype=None).to_dict()
    made = {"architectures", "model_type", "transformers_version", "auto_map", "dtype"}
    fields = {name: value for name, value in ours.items() if name not in made}
    ids = {"vocab_size": vocab_size, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    is_square = form not in ("gpt_bigcode", "bloom", "mpt", "gpt2")
    fields |= {**ids, **(SQUARE if is_square else {}), **FITTING.get(form, {})}
    if fields.get("sliding_window") is None:
        fields.pop("layer_types", None)
    return fields


def small_decoder(tokenizer, learns=True, **fields):
    """All random, but for norms that do not learn."""
    sizes = {**SMALL, "tie_word_embeddings": False, "vocab_size": len(tokenizer) + 2}
    model = randomise(TformerDecoderForCausalLM(TformerDecoderConfig(**{**sizes, **fields})))
    for name, parameter in model.named_parameters() if not learns else ():
        if "norm" in name:
            torch.nn.init.constant_(parameter, float(name.endswith("weight")))
    return model.eval()


def drawn(fields, seed):
    """The same with some fields changed, or None where ours does not allow it."""
    chosen = random.Random(seed)
    changed = dict(fields)
    for name in chosen.sample(list(DRAWN), 3):
        changed[name] = chosen.choice(DRAWN[name])
    rope = changed.get("rope_parameters")
    if rope and "rope_type" in rope and chosen.random() < 0.5:
        kind = chosen.choice(list(SCALINGS))
        part = {n: rope[n] for n in ("partial_rotary_factor",) if n in rope}
        changed["rope_parameters"] = {
            "rope_theta": 500.0,
            "rope_type": kind,
            **SCALINGS[kind],
            **part,
        }
    try:
        TformerDecoderConfig(**deepcopy(changed))
    except Exception:
        return None
    return changed
