"""Runs a promise on random cases and keeps the smallest case of every fault."""

import re
import traceback
from dataclasses import dataclass, field, fields

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from .building import quiet
from .cases import Case
from .configurations import DEPENDENT
from .promises import PROMISES

PROGRAM = """\
  repeat it: PYTHONPATH=tests .venv/bin/python -m fuzz.repeat <<'CASE'
{name} {case!r}
CASE"""


DEFAULTS = {field.name: field.default for field in fields(Case)} | {"family": "decoder"}
SIZES = {name for names in DEPENDENT.values() for name in names if not name.endswith("_id")}
SIZES = SIZES - {"sliding_window", "value_head_dim", "source_vocab_size"} | {"lengths", "seed"}


@dataclass
class Fault:
    promise: str
    case: object
    error: Exception

    def __str__(self):
        where = traceback.extract_tb(self.error.__traceback__)[-1]
        return (
            f"FAULT of {self.promise}: {type(self.error).__name__}: {self.error}\n"
            f"  raised in {where.filename}, line {where.lineno}\n"
            + PROGRAM.format(name=self.promise, case=self.case)
        )

    def explains(self, promise, case, error):
        """Whether another failure is likely to be the same one: nothing that made it is missing."""
        return (
            promise == self.promise
            and kind(error) == kind(self.error)
            and traits(self.case) <= traits(case)
        )


def kind(error):
    """The class and the words of an error, without its numbers."""
    words = re.sub(r"\[.*\]|'.*'", "", str(error))
    return type(error).__name__, re.sub(r"[-\d.e+]+", "", words)[:60]


def traits(case):
    """What a case is made of beside sizes and defaults, so that two can be compared."""
    values = {name: value for name, value in vars(case).items() if value != DEFAULTS.get(name)}
    values |= {**values.pop("config", {}), **values.pop("options", {})}
    rope = values.pop("rope_parameters", None) or {}
    values |= {f"rope {name}": value for name, value in rope.items()}
    return {
        (name, repr(value) if isinstance(value, (bool, str)) else None)
        for name, value in values.items()
        if name not in SIZES and value not in ([], {}, None)
    }


@dataclass
class Faults:
    found: list[Fault] = field(default_factory=list)

    def explain(self, *failure):
        return any(fault.explains(*failure) for fault in self.found)

    def add(self, fault):
        self.found.append(fault)
        print(fault, flush=True)

    def of(self, promise):
        return sum(fault.promise == promise for fault in self.found)


def run(promise, count, seed, faults, phases=(Phase.generate, Phase.shrink)):
    """Tries up to `count` cases; what breaks the promise is made small and added to `faults`.

    Returns how many were tried before the first that no known fault explains.
    """
    strategy, check = PROMISES[promise]
    tried, failure = 0, None

    @seeded(seed)
    @settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(strategy)
    def attempt(case):
        nonlocal tried, failure
        tried += failure is None
        try:
            with quiet():
                check(case)
        except Exception as error:
            if faults.explain(promise, case, error):
                return
            failure = Fault(promise, case, error)  # the last one that is tried is the smallest
            raise

    try:
        attempt()
    except Exception:
        if failure is None:
            raise
        faults.add(failure)
    return tried
