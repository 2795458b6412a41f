"""The programs that a model card shows its readers."""

import re


def programs_of(card):
    return re.findall(r"```python\n(.*?)```", card, re.S)


def one_after_another(programs):
    """A program that runs each of these for itself: starting a process anew takes seconds."""
    return "\n".join(f"exec({program!r}, {{'__name__': '__main__'}})" for program in programs)
