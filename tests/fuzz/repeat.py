"""Repeats one case: reads the name of a promise and a case, as `make fuzz` prints them."""

import sys

from .building import quiet
from .cases import Case
from .promises import PROMISES
from .promises_configuration import ConfigurationFile, Deep
from .promises_refusals import Wrong

NAMES = {"Case": Case, "Wrong": Wrong, "ConfigurationFile": ConfigurationFile, "Deep": Deep}
NAMES |= {"nan": float("nan"), "inf": float("inf")}

name, case = sys.stdin.read().split(maxsplit=1)
with quiet():
    PROMISES[name][1](eval(case, NAMES))
print("the promise is kept")
