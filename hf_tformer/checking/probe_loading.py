"""Load what `publish` sent, as a reader without this package does: the program of a fresh process
behind walls.

    main(say, FOLDER, AUTO_CLASS)    says which weights do not fit the code: {} where all do
"""

# ruff: noqa: E402 (imports are forbidden before any other module is imported)

import sys
from collections.abc import Callable

sys.modules["hf_tformer"] = None  # type: ignore[assignment]  # cannot be imported

import transformers


def main(say: Callable[[object], None], folder: str, auto_class: str) -> None:
    load = getattr(transformers, auto_class).from_pretrained
    _, report = load(folder, trust_remote_code=True, output_loading_info=True)
    say({name: sorted(map(str, keys))[:5] for name, keys in report.items() if keys})
