"""The programs that a model card shows its readers."""

import re


def programs_of(card):
    return re.findall(r"```python\n(.*?)```", card, re.S)


BETWEEN = "=== the next program ==="


def one_after_another(programs):
    """A program that runs each of these for itself: starting a process anew takes seconds."""
    calls = [f"exec({program!r}, {{'__name__': '__main__'}})" for program in programs]
    return f"\nprint({BETWEEN!r})\n".join(calls)


def each_prints(programs, printed):
    """Whether every one of them showed its reader something."""
    parts = printed.split(BETWEEN)
    return len(parts) == len(programs) and all(part.strip() for part in parts)
