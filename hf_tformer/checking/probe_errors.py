"""Explain an error of a folder's code to its author, in the fresh process of `check` (probe.py)."""

import re
import traceback
from pathlib import Path


class Fault(Exception):  # noqa: N818 (the fault of a model, not of this program)
    """A sentence that says what is wrong, and the remedy."""


class Caution(Exception):  # noqa: N818
    """A sentence that says what some users will miss, and the remedy."""


class Skip(Exception):  # noqa: N818
    """The reason why a check does not apply."""


# What a message of transformers or torch means for the author of the code, by a part of it.
MEANINGS = {
    "all_tied_weights_keys": "end __init__ of the model with self.post_init()",
    "Unrecognized configuration class <class 'transformers_modules": (
        "end __init__ of the configuration with super().__init__(**kwargs), which keeps auto_map"
    ),
    "out of meta tensor": "leave devices out of __init__, which transformers runs without values",
    "meta device type tensor": "ask no values in __init__, which transformers runs without any",
    "Cache' object is not subscriptable": (
        "past_key_values is a Cache: use its update() and get_seq_length()"
    ),
    "`model_kwargs` are not used": "take attention_mask in forward",
    "Target -100 is out of bounds": "pass ignore_index=-100 to the loss",
    "tie_weights() got an unexpected": "declare _tied_weights_keys, and leave tie_weights() alone",
    "'dict' object has no attribute": (
        "make a nested configuration of its class in __init__, and name it in sub_configs"
    ),
    "contained shared tensors": "declare _tied_weights_keys as {target: source}",
    "'tuple' object has no attribute 'logits'": (
        "return a ModelOutput, such as CausalLMOutputWithPast"
    ),
    "not compiled with CUDA": "make tensors on the device of the input, as on input_ids.device",
    **dict.fromkeys(
        ("same dtype", "expected scalar type", "attn_mask dtype"),
        "give a mask of numbers and every table the dtype of the states: states.dtype",
    ),
    "get_extended_attention_mask": "make the mask with transformers.masking_utils",
    "can't allocate memory": "it takes more memory than it is allowed: --memory allows more",
    "No space left": "it writes more than it is allowed",
}


def explained(error: Exception) -> str:
    """Return an error with its place in the folder, and what an author can do about it."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}{place(error)}{remark(error)}"


def place(error: Exception) -> str:
    """Return the last line of the folder's code that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "transformers_modules" in frame.filename]
    return f", at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def remark(error: Exception) -> str:
    message = str(error)
    if isinstance(error, PermissionError):
        return " (it may not reach files outside, the network or other programs)"
    if fields := re.search(r"Generation parameters found: (.*)", message):
        return f" (rename the fields {fields[1]}, which generate() knows by another meaning)"
    if isinstance(error, MemoryError):
        message = "can't allocate memory"
    found = [meaning for part, meaning in MEANINGS.items() if part in message]
    return f" ({found[0]})" if found else ""
