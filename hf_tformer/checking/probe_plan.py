"""The checks that the fresh process of `check` runs, in order.

The process follows the list (probe.py), and its caller compares the report with its own copy of it
(fresh_process.py): a report is not believed about which checks there are, which must be skipped, or
whether there is a tokenizer.
"""

from collections.abc import Iterable
from pathlib import Path

# The class for the detailed checks if config.json does not name the one that wrote the weights.
PREFERENCE = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModel")
# The only check that needs no code of the folder: its verdict is sent before any is imported.
TOKENIZER = "tokenizer loads"
OWN_TOKENIZER = "loads: AutoTokenizer"  # with code of the folder
OF_WEIGHTS = ("loading report", "parameters", "buffers", "ties")
OF_ANSWERS = ("padded rows", "cache", "causality", "masked rows")
SECOND_SAVE = "second save"
# The checks of quantised weights. The others fill parameters, save, or expect more exact answers
# than a quantiser keeps; transformers cannot initialise another head beside such weights.
OF_QUANTISED_WEIGHTS = ("loads: AutoConfig", "loading report", TOKENIZER, OWN_TOKENIZER)
VERDICTS = ("ok", "fail", "skip")


def own_autos(config: dict) -> dict:
    """Return the auto_map of a configuration, or {} where transformers' own classes open it."""
    autos = config.get("auto_map")
    return autos if isinstance(autos, dict) and "AutoConfig" in autos else {}


def main_auto(config: dict, autos: dict) -> str:
    """Return the Auto class of the class that wrote the weights, "" if there is none."""
    models = [name for name in autos if name.startswith("AutoModel")]
    architectures = config.get("architectures")
    for architecture in architectures if isinstance(architectures, list) else ():
        for name in models:
            if str(autos[name]).split(".")[-1] == architecture:
                return name
    return next((name for name in (*PREFERENCE, *models) if name in models), "")


def has_own_tokenizer(tokenizer: object) -> bool:
    """Return whether the content of tokenizer_config.json names code of the folder."""
    autos = tokenizer.get("auto_map") if isinstance(tokenizer, dict) else None
    return isinstance(autos, dict) and "AutoTokenizer" in autos


def planned(config: dict, autos: dict, tokenizer: object) -> list[str]:
    """Return the names of all checks; the main class comes before those compared with it."""
    main = main_auto(config, autos)
    ordered = sorted(autos, key=lambda auto: (auto != "AutoConfig", auto != main))
    return surrounded((f"loads: {auto}" for auto in ordered), tokenizer)


def surrounded(loads: Iterable[str], tokenizer: object) -> list[str]:
    own = [OWN_TOKENIZER] if has_own_tokenizer(tokenizer) else []
    return list(dict.fromkeys([TOKENIZER, *own, *loads, *OF_WEIGHTS, *OF_ANSWERS, SECOND_SAVE]))


def is_possible(names: object, config: dict, tokenizer: object) -> bool:
    """Return whether a process may have planned these checks for a configuration."""
    if autos := own_autos(config):
        return names == planned(config, autos, tokenizer)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return False
    known = [f"loads: {auto}" for auto in ("AutoConfig", *PREFERENCE)]
    return names == surrounded((name for name in names if name in known), tokenizer)


def is_left_out(name: str, config: dict, main: str) -> bool:
    """Return whether a check does not apply, because the weights are quantised."""
    kept = (f"loads: {main}", *OF_QUANTISED_WEIGHTS)
    return bool(config.get("quantization_config")) and name not in kept


def possible_verdicts(name: str, config: dict, tokenizer: object, folder: Path) -> tuple[str, ...]:
    """Return the verdicts that a check of a folder may have."""
    autos = own_autos(config)
    if autos and is_left_out(name, config, main_auto(config, autos)):
        return ("skip",)
    if name == TOKENIZER:
        is_run = (folder / "tokenizer_config.json").exists() and not has_own_tokenizer(tokenizer)
        return VERDICTS[:2] if is_run else ("skip",)
    return VERDICTS
