"""Folders that `tformer new` wrote, as packages that tests import."""

import functools
import importlib
import sys
import tempfile
from functools import wraps
from pathlib import Path

import pytest
import torch

from hf_tformer.__main__ import main
from hf_tformer.testing import (
    DecoderPromises,
    EncoderPromises,
    MixturePromises,
    Seq2SeqPromises,
)

PROMISES = {
    "decoder": DecoderPromises,
    "seq2seq": Seq2SeqPromises,
    "encoder": EncoderPromises,
    "mixture": MixturePromises,
}
PLACE = tempfile.TemporaryDirectory(prefix="tformer-new-")


@functools.cache
def folder_of(family):
    """The folder of a model called Own, as it was written."""
    folder = Path(PLACE.name) / f"own_{family}"
    assert main(["new", str(folder), "--family", family, "--name", "Own"]) == 0
    return folder


@functools.cache
def package_of(family):
    folder = folder_of(family)
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    importlib.invalidate_caches()
    return importlib.import_module(folder.name)


def head_of(family):
    package = package_of(family)
    return next(getattr(package, name) for name in package.__all__ if "For" in name)


def family_of(family):
    """How its model is asked."""
    promises = type("Own", (PROMISES[family],), {"model_class": head_of(family)})()
    return promises.family


def build(family, **fields):
    torch.manual_seed(0)
    return family_of(family).build(None, **fields)


def slow(test):
    """The same test, for a class whose family is not the first that keeps it."""

    @wraps(test)
    def again(self, *args, **kwargs):
        test(self, *args, **kwargs)

    return pytest.mark.slow(again)
