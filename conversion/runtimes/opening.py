"""Open an export as a model with the methods of the one that it was made from."""

from pathlib import Path

from ..engine.aliases import FilePath
from ..engine.errors import ConversionError
from .exporting import library_of
from .generating import Graphs, InGenerate
from .registry import RUNTIMES
from .runtime import Source


def open_exported(folder: FilePath) -> InGenerate | Graphs:
    """Open the model of an ONNX or OpenVINO folder, with generate() if it has a language head."""
    folder = Path(folder)
    found = [r for r in RUNTIMES.values() if any((folder / name).is_file() for name in r.marks)]
    if not found:
        named = ", ".join(name for runtime in RUNTIMES.values() for name in runtime.marks)
        raise ConversionError(f"{folder} has none of {named}: give a folder that was exported")
    runtime = found[0]
    runtime.refuse_missing_packages()
    library = library_of(folder)
    source = Source(folder, library, library.load_config(folder), "float32")
    graphs = runtime.open(source, folder)
    assert isinstance(graphs, Graphs)  # so are those of all runtimes with marks
    return InGenerate(source, graphs) if source.generates else graphs
