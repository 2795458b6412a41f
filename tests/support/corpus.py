"""The corpus of hostile and honest forms that tests/check holds as TOML."""

import tomllib

from .paths import TESTS

# The file that some forms import from.
OTHER = "import os as o\nfrom os import *\ndef hasattr(o, n): o.system(n)\n"


def forms_of(name):
    """Return the forms of a file of tests/check, as dictionaries."""
    text = (TESTS / "check" / f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["form"]
