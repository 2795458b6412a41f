"""A lesson as a package: a folder of `tformer new`, with the two files of the lesson."""

import importlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from hf_tformer.new import write_new

HERE = Path(__file__).parent
FAMILIES = {"additive": "seq2seq", "local": "seq2seq", "talking": "decoder"}


@contextmanager
def lesson(name: str) -> Iterator[ModuleType]:
    """Import the package of a lesson. Its files stay until the end: saving a model copies them."""
    with tempfile.TemporaryDirectory(prefix=f"lesson-{name}-") as place:
        folder = Path(place) / f"lesson_{name}"
        write_new(folder, FAMILIES[name], name.capitalize())
        shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
        sys.path.append(place)
        try:
            yield importlib.import_module(folder.name)
        finally:
            sys.path.remove(place)
