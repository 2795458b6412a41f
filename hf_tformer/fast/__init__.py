"""What makes our models fast on a CPU, kept apart from the models themselves.

A model is made of eager modules, and a saved model carries nothing else. Where this package is
installed, some methods of our classes are replaced (patches.py lists them) as soon as one of these
classes is imported. Then tokens pass through functions instead of modules, and our own decoding
loops generate, wherever nothing else takes part (guards.py). Results are the same up to rounding.

    hf_tformer.fast.disable()               use the modules and transformers' loops, in this process
    hf_tformer.fast.enable()                use the fast paths again
    hf_tformer.fast.enable(compiled=True)   also compile decoding steps at batch size 1
    with hf_tformer.fast.disabled():        use the modules within this block
    hf_tformer.fast.status()                whether the fast paths are on, and if not, why

With versions of torch or transformers that were not tested, nothing is replaced.
"""

import importlib.metadata
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from . import settings

# The oldest and the newest release that the tests ran with.
TESTED = {"torch": ("2.13", "2.14"), "transformers": ("5.16.1", "5.24")}
# Module of a family → the function of patches.py that returns its patches.
FAMILIES = {
    "hf_tformer.model.modeling_decoder": "decoder_patches",
    "hf_tformer.model.modeling_encoder": "encoder_patches",
    "hf_tformer.model.modeling_mixture": "mixture_patches",
    "hf_tformer.model.modeling_seq2seq": "seq2seq_patches",
}

is_wanted = True
is_forced = False  # with untested versions, too


def enable(untested: bool = False, compiled: bool = False) -> None:
    """Turn the fast paths on; with `untested`, for any versions of torch and transformers.

    With `compiled`, decoding steps at batch size 1 are compiled when the first one is taken, which
    takes seconds.
    """
    global is_wanted, is_forced
    if compiled and not settings.is_compiled:
        refuse_without_compiler()
    is_wanted, is_forced, settings.is_compiled = True, untested, compiled
    for module in FAMILIES:
        patch(module)


def disable() -> None:
    """Let every model call its modules, and transformers decode, until enable() is called."""
    global is_wanted
    is_wanted = False
    if patches := sys.modules.get(f"{__name__}.patches"):
        patches.restore()


@contextmanager
def disabled() -> Iterator[None]:
    """Turn the fast paths off within a with block."""
    before = is_wanted
    disable()
    try:
        yield
    finally:
        if before:
            enable(is_forced, settings.is_compiled)


def status() -> str:
    """Return "on", or "off" and the reason."""
    if not is_wanted:
        return "off: disable() was called"
    if untested := untested_versions():
        found = " and ".join(f"{name} {version}" for name, version in untested.items())
        if not is_forced:
            return f"off: not tested with {found}; enable(untested=True) turns it on all the same"
    return "on"


def refuse_without_compiler() -> None:
    """Raise an error where no C++ compiler is found, which Inductor needs."""
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
    """Return those of torch and transformers that were not tested, with their versions."""
    found = {name: importlib.metadata.version(name) for name in TESTED}
    return {name: version for name, version in found.items() if not is_tested(name, version)}


def is_tested(name: str, version: str) -> bool:
    """Return whether a version lies between the oldest and the newest tested release."""
    from packaging.version import Version

    oldest, newest = map(Version, TESTED[name])
    release = Version(Version(version).base_version)
    known = Version(".".join(map(str, release.release[: len(newest.release)])))
    return release >= oldest and known <= newest


def patch(module: str) -> None:
    """Apply the patches of a family, once its module has been imported."""
    modeling = sys.modules.get(module)
    if modeling is None or status() != "on":
        return
    from . import patches

    patches.apply(getattr(patches, FAMILIES[module])(modeling))


__all__ = ["disable", "disabled", "enable", "status"]
