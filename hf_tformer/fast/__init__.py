"""What makes our models fast on a CPU, beside them and not in them.

A model is plain modules; that is what a saved folder carries. Where this package is installed, some
methods of our classes are replaced (patches.py lists them) as soon as one of these classes is
touched: texts then pass through functions instead of modules, and are decoded by loops of our own,
wherever nothing else takes part (guards.py). The answers are the same up to rounding.

    hf_tformer.fast.disable()               back to the modules, in this process
    hf_tformer.fast.enable()                and forth again
    hf_tformer.fast.enable(compiled=True)   the same, and texts that are written alone are compiled
    with hf_tformer.fast.disabled():        for a while
    hf_tformer.fast.status()                whether it is on, and why not

Beside versions of torch or transformers that it was not tested with, nothing is replaced.
"""

import importlib.metadata
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# From the oldest to the newest release that the tests ran with, both included.
TESTED = {"torch": ("2.13", "2.13"), "transformers": ("5.16.1", "5.23")}
# Module of a family → the function of patches.py that says what is replaced in it.
FAMILIES = {
    "hf_tformer.model.modeling_decoder": "decoder_patches",
    "hf_tformer.model.modeling_encoder": "encoder_patches",
    "hf_tformer.model.modeling_seq2seq": "seq2seq_patches",
}

is_wanted = True
is_forced = False  # beside untested versions, too
is_compiled = False  # steps of one text (compiled.py)


def enable(untested: bool = False, compiled: bool = False) -> None:
    """Lets our models be fast again; if `untested`, whatever torch and transformers there are.

    If `compiled`, steps of one text are compiled when the first one is written: it takes seconds.
    """
    global is_wanted, is_forced, is_compiled
    if compiled and not is_compiled:
        refuse_without_compiler()
    is_wanted, is_forced, is_compiled = True, untested, compiled
    for module in FAMILIES:
        patch(module)


def disable() -> None:
    """Lets every model call its modules, and transformers decode, until enable() is called."""
    global is_wanted
    is_wanted = False
    if patches := sys.modules.get(f"{__name__}.patches"):
        patches.restore()


@contextmanager
def disabled() -> Iterator[None]:
    """Everything within takes the plain way."""
    before = is_wanted
    disable()
    try:
        yield
    finally:
        if before:
            enable(is_forced, is_compiled)


def status() -> str:
    """One sentence: on, or off and why."""
    if not is_wanted:
        return "off: disable() was called"
    if untested := untested_versions():
        found = " and ".join(f"{name} {version}" for name, version in untested.items())
        if not is_forced:
            return f"off: not tested with {found}; enable(untested=True) turns it on all the same"
    return "on"


def refuse_without_compiler() -> None:
    """Inductor writes C++."""
    from torch._inductor.cpp_builder import get_cpp_compiler  # seconds that nobody else needs

    try:
        get_cpp_compiler()
    except RuntimeError as error:
        raise RuntimeError(
            "compiled=True needs a C++ compiler, and none was found: install g++ or clang, or name "
            "one in the environment variable CXX"
        ) from error


@cache
def untested_versions() -> dict[str, str]:
    """Which of torch and transformers are outside of what was tested, and their versions."""
    found = {name: importlib.metadata.version(name) for name in TESTED}
    return {name: version for name, version in found.items() if not is_tested(name, version)}


def is_tested(name: str, version: str) -> bool:
    from packaging.version import Version

    oldest, newest = map(Version, TESTED[name])
    release = Version(Version(version).base_version)
    known = Version(".".join(map(str, release.release[: len(newest.release)])))
    return release >= oldest and known <= newest


def patch(module: str) -> None:
    """Replaces what is to be replaced in a family, once it has been imported."""
    modeling = sys.modules.get(module)
    if modeling is None or status() != "on":
        return
    from . import patches

    patches.apply(getattr(patches, FAMILIES[module])(modeling))


__all__ = ["disable", "disabled", "enable", "status"]
