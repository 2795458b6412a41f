"""Faults that converters make, each planted in a model folder of transformers.

A fault changes the folder in place: its configuration, its weights, its tokenizer or its settings.
`asked` is the question that shows it, `cause` what is said of it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from conversion.proving import causes

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Fault:
    name: str
    form: str  # the format of the model
    plant: Callable[[Path], None]
    asked: str
    cause: str  # a regular expression
    fields: dict[str, Any] = field(default_factory=dict)  # of the model


def of_config(**changes):
    """Fields of config.json, rope_parameters field by field."""

    def plant(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        for name, value in changes.items():
            if name == "rope":
                config["rope_parameters"] = {**config["rope_parameters"], **value}
            else:
                config[name] = value
        path.write_text(json.dumps(config))

    return plant


def of_weights(change):
    """Tensors by their names; `change` returns those that are new."""

    def plant(folder):
        state = load_file(folder / WEIGHTS)
        config = json.loads((folder / "config.json").read_text())
        new = {name: x.contiguous().clone() for name, x in change(state, config).items()}
        save_file({**state, **new}, folder / WEIGHTS, {"format": "pt"})

    return plant


def each(pattern, change):
    return of_weights(
        lambda state, _: {name: change(x) for name, x in state.items() if re.search(pattern, name)}
    )


def turned(state, config):
    """Rows of queries and keys in the order of the other rotation."""
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    return {
        name: causes.in_pairs(x, heads[found[1]])
        for name, x in state.items()
        if (found := causes.QK.search(name))
    }


def keys_in_wrong_heads(state, config):
    """As in transformers #31766: keys turned back by the number of query heads."""
    turned_back = causes.in_halves
    return {
        name: turned_back(x, config["num_attention_heads"])
        for name, x in turned(state, config).items()
        if "k_proj" in name
    }


def swapped(one, other):
    def change(state, _):
        pairs = {n: n.replace(one, other) for n in state if one in n}
        return {
            **{a: state[b] for a, b in pairs.items()},
            **{b: state[a] for a, b in pairs.items()},
        }

    return of_weights(change)


def of_json(name, change):
    def plant(folder):
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(change(content) or content))

    return plant


def of_template(change):
    def plant(folder):
        path = folder / "chat_template.jinja"
        path.write_text(change(path.read_text()))

    return plant


def normalizer(content):
    content["normalizer"] = {"type": "Lowercase"}


def splits(content):
    """Digits one by one, as in another model's pre-tokenizer."""
    digits = {"type": "Digits", "individual_digits": True}
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [digits, content["pre_tokenizer"]],
    }


def other_order(content):
    """Two tokens that stand for each other's text."""
    vocab = content["model"]["vocab"]
    first, second = [token for token, _ in sorted(vocab.items(), key=lambda one: one[1])][80:82]
    vocab[first], vocab[second] = vocab[second], vocab[first]


def no_beginning(content):
    content["post_processor"] = None


def end_of(other):
    def change(content):
        content["eos_token_id"] = other

    return change


ROPE = {"rope_type": "default", "rope_theta": 500000.0}
SLOWED = {**ROPE, "rope_type": "linear", "factor": 4.0}
LLAMA = {"tie_word_embeddings": False, "head_dim": 8, "rope_parameters": ROPE}
DOWN = r"layers\.1\.mlp\.down_proj"
TIED = of_weights(lambda state, _: {"lm_head.weight": state["model.embed_tokens.weight"]})
FAULTS = [
    # Weights.
    Fault("rotation order", "llama", of_weights(turned), "weights", "rotation order", LLAMA),
    Fault(
        "layers exchanged", "llama", swapped("rs.0.", "rs.1."), "weights", "layers 0 and 1", LLAMA
    ),
    Fault("gate and up", "llama", swapped("gate_proj", "up_proj"), "weights", "gate_proj", LLAMA),
    Fault("head tied", "llama", TIED, "weights", "head is tied|tie_word", LLAMA),
    Fault("zeros", "llama", each(DOWN, torch.zeros_like), "weights", "zero", LLAMA),
    Fault("damage", "llama", each(DOWN, lambda x: x.flip(0)), "weights", "other numbers", LLAMA),
    Fault(
        "norms plus one", "llama", each(r"norm\.w", lambda x: x + 1), "weights", "is added", LLAMA
    ),
    Fault("transposed", "llama", each(r"o_proj", lambda x: x.T), "weights", "transposed", LLAMA),
    Fault("no biases", "qwen2", each(r"bias", torch.zeros_like), "weights", "biases"),
    Fault("positions", "gpt2", each(r"wpe", lambda x: x.roll(-1, 0)), "weights", "positions"),
    Fault(
        "keys in wrong heads",
        "llama",
        of_weights(keys_in_wrong_heads),
        "weights",
        "number of query heads",
        {**LLAMA, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8},
    ),
    # Fields.
    Fault("theta", "llama", of_config(rope={"rope_theta": 1e4}), "settings", "rope_theta", LLAMA),
    Fault("epsilon", "llama", of_config(rms_norm_eps=1e-5), "settings", "eps", LLAMA),
    Fault(
        "scaling",
        "llama",
        of_config(rope=ROPE),
        "settings",
        "rope_type",
        {**LLAMA, "rope_parameters": SLOWED},
    ),
    Fault(
        "part", "phi", of_config(rope={"partial_rotary_factor": 1.0}), "settings", "partial|count"
    ),
    Fault("soft cap", "gemma2", of_config(final_logit_softcapping=None), "settings", "final_logit"),
    Fault(
        "cap of scores", "gemma2", of_config(attn_logit_softcapping=None), "settings", "attn_logit"
    ),
    Fault(
        "window",
        "gemma2",
        of_config(sliding_window=4096),
        "settings",
        "sliding|all layers are full",
    ),
    Fault("activation", "gpt2", of_config(activation_function="relu"), "logits", "activation"),
    Fault("multiplier", "granite", of_config(embedding_multiplier=1.0), "settings", "embedding"),
    Fault("residuals", "granite", of_config(residual_multiplier=1.0), "settings", "residual"),
    Fault("parallel", "gpt_neox", of_config(use_parallel_residual=False), "settings", "parallel"),
    # Texts.
    Fault(
        "no beginning", "llama", of_json("tokenizer.json", no_beginning), "token ids", "BOS", LLAMA
    ),
    Fault("lowercase", "llama", of_json("tokenizer.json", normalizer), "token ids", "lower", LLAMA),
    Fault("words", "llama", of_json("tokenizer.json", splits), "token ids", "pre-tokenizer", LLAMA),
    Fault(
        "order", "llama", of_json("tokenizer.json", other_order), "token ids", "vocabulary", LLAMA
    ),
    Fault("end", "llama", of_json("generation_config.json", end_of(7)), "special", "ends", LLAMA),
    Fault("template", "llama", of_template(lambda x: x.strip() + "!"), "chat", "another", LLAMA),
    Fault(
        "no template",
        "llama",
        lambda folder: (folder / "chat_template.jinja").unlink(),
        "chat",
        "no chat",
        LLAMA,
    ),
]
