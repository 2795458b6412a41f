"""Repeats one case: reads the name of a promise and a case, as `make fuzz` prints them."""

import sys

from .building import quiet
from .cases import Case
from .promises import PROMISES
from .promises_refusals import Wrong

name, case = sys.stdin.read().split(maxsplit=1)
with quiet():
    PROMISES[name][1](eval(case, {"Case": Case, "Wrong": Wrong, "nan": float("nan")}))
print("the promise is kept")
