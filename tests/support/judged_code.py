"""What the reader of `tformer check` finds in code, and which of it stops the code from running."""

import ast

from hf_tformer.checking import names
from hf_tformer.checking.references import references


def judged(code, data=None, **siblings):
    """Everything that is found in a file, main.py, and in its siblings: name → code.

    `data`: key → what the folder's JSON files have under it.
    """
    files = {"main": code, **siblings}
    return list(references({f"{name}.py": ast.parse(text) for name, text in files.items()}, data))


def found_in(code, data=None, **siblings):
    """What is found in main.py alone."""
    return [found for found in judged(code, data, **siblings) if found.file == "main.py"]


def in_groups(**groups):
    """The forms of all groups, each with the name of its group before its own."""
    return {f"{group}: {name}": code for group in groups for name, code in groups[group].items()}


def stops(kind):
    return kind == names.NOT_UNDERSTOOD or names.is_dangerous(kind)
