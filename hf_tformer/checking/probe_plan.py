"""The checks that the fresh process of `check` runs, in order.

The process follows the list (probe.py), and its caller compares the report with its own copy of it
(fresh_process.py): a report is not believed about which checks there are, which must be skipped, or
whether there is a tokenizer.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

Contents = Mapping[str, object]  # of OTHER_FILES, by name; None where there is none

# The class for the detailed checks if config.json does not name the one that wrote the weights.
PREFERENCE = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModel")
# The only check that needs no code of the folder: its verdict is sent before any is imported.
TOKENIZER = "tokenizer loads"
OWN_TOKENIZER = "loads: AutoTokenizer"  # with code of the folder
# The files beside config.json that may name code of the folder.
TOKENIZER_FILE = "tokenizer_config.json"
OTHER_FILES = (TOKENIZER_FILE, "preprocessor_config.json", "processor_config.json")
OF_WEIGHTS = ("loading report", "parameters", "buffers", "ties")
OF_ANSWERS = (
    *("forward", "padded rows", "causality", "cache", "generation", "masked rows", "options"),
    "training",
)
SECOND_SAVE = "second save"
# The checks of quantised weights. The others fill parameters, save, or expect more exact answers
# than a quantiser keeps; transformers cannot initialise another head beside such weights.
OF_QUANTISED_WEIGHTS = ("loading report", TOKENIZER)
VERDICTS = ("ok", "fail", "skip", "warn")


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


def loads_beside(contents: Contents) -> list[str]:
    """Return the checks of what the files beside config.json name: tokenizers, processors."""
    maps = [content.get("auto_map") for content in contents.values() if isinstance(content, dict)]
    named = (auto for autos in maps if isinstance(autos, dict) for auto in autos if autos[auto])
    return [f"loads: {auto}" for auto in named if not str(auto).startswith("AutoModel")]


def planned(config: dict, autos: dict, contents: Contents) -> list[str]:
    """Return the names of all checks; the main class comes before those compared with it."""
    main = main_auto(config, autos)
    ordered = sorted(autos, key=lambda auto: (auto != "AutoConfig", auto != main))
    return surrounded((f"loads: {auto}" for auto in ordered), contents)


def surrounded(loads: Iterable[str], contents: Contents) -> list[str]:
    beside = loads_beside(contents)
    return list(dict.fromkeys([TOKENIZER, *beside, *loads, *OF_WEIGHTS, *OF_ANSWERS, SECOND_SAVE]))


def is_possible(names: object, config: dict, contents: Contents) -> bool:
    """Return whether a process may have planned these checks for a configuration."""
    if autos := own_autos(config):
        return names == planned(config, autos, contents)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return False
    known = [f"loads: {auto}" for auto in ("AutoConfig", *PREFERENCE)]
    return names == surrounded((name for name in names if name in known), contents)


def is_left_out(name: str, config: dict, main: str) -> bool:
    """Return whether a check does not apply, because the weights are quantised."""
    of_weights = not name.startswith("loads: Auto") or name.startswith("loads: AutoModel")
    is_kept = name in (f"loads: {main}", *OF_QUANTISED_WEIGHTS) or not of_weights
    return bool(config.get("quantization_config")) and not is_kept


def possible_verdicts(name: str, config: dict, contents: Contents, folder: Path) -> tuple[str, ...]:
    """Return the verdicts that a check of a folder may have."""
    autos = own_autos(config)
    if autos and is_left_out(name, config, main_auto(config, autos)):
        return ("skip",)
    if name == TOKENIZER:
        is_own = OWN_TOKENIZER in loads_beside(contents)
        is_run = (folder / TOKENIZER_FILE).exists() and not is_own
        return VERDICTS[:2] if is_run else ("skip",)
    return VERDICTS
