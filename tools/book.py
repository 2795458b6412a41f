"""The book in docs/: its chapters, their programs, the printed numbers, the links into the code.

    python tools/book.py run docs/en/03-scaled-dot-product.md
    python tools/book.py pictures        # writes docs/pictures anew

All python blocks of a chapter are one program, run from top to bottom as in a notebook. A text
block below one holds what that block prints. `run` prints it too, and keeps the pictures.
"""

import argparse
import ast
import contextlib
import io
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LANGUAGES = ("en", "zh")
SYSTEMS = 22  # the chapters after these are about work
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass
class Block:
    kind: str
    text: str


@dataclass
class Step:
    """A python block, and its expected output; None where that differs from run to run."""

    code: str
    printed: str | None


def chapters(language: str) -> list[Path]:
    return sorted((DOCS / language).glob("*.md"))


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["kind"], match["text"]) for match in found]


def steps(page: Path) -> list[Step]:
    found = []
    for block in blocks(page):
        if block.kind == "python":
            found.append(Step(block.text, None))
        elif block.kind == "text" and found and found[-1].printed is None:
            found[-1].printed = block.text
    return found


def links(page: Path) -> list[tuple[str, str]]:
    """Return (path, name behind #) of each link that stays in the repository."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [(match[1], match[2] or "") for match in LINK.finditer(prose)]


def definitions(path: Path) -> dict[str, int]:
    """Return the line of each name that a module defines, and of each Class.name."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        for name in names_of(node):
            found[name] = node.lineno
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                found |= {f"{node.name}.{name}": inner.lineno for name in names_of(inner)}
    return found


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


class Echo(io.StringIO):
    """Keep what is written, and show it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = sys.stdout

    def write(self, text: str) -> int:
        self.shown.write(text)
        return super().write(text)

    def flush(self) -> None:
        self.shown.flush()


def run(page: Path) -> list[str]:
    """Run a chapter in the current folder; return where its output differs from the page."""
    faults, names = [], {"__name__": "__main__"}
    for number, step in enumerate(steps(page), 1):
        code = compile(step.code, f"{page.name}, block {number}", "exec")
        with contextlib.redirect_stdout(Echo()) as printed:
            try:
                exec(code, names)
            except ModuleNotFoundError as error:
                sys.exit(f"{page.name} needs {error.name}: run `pip install '.[book]'`")
        if step.printed is not None and not is_same(step.printed, printed.getvalue()):
            faults.append(
                f"block {number} prints\n{printed.getvalue()}\nand the page says\n{step.printed}"
            )
    return faults


def is_same(expected: str, printed: str) -> bool:
    """Compare words exactly, and numbers but for the rounding of another processor."""
    if NUMBER.sub("0", " ".join(expected.split())) != NUMBER.sub("0", " ".join(printed.split())):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=2e-3, abs_tol=1e-5) for a, b in pairs)


def keep_pictures_the_same() -> None:
    """Draw without a date or random names, so that only real changes are changes."""
    import matplotlib

    os.environ["SOURCE_DATE_EPOCH"] = "0"
    matplotlib.rcParams["svg.hashsalt"] = "book"


@contextlib.contextmanager
def elsewhere(pictures: Path) -> Iterator[None]:
    """Work in a new folder that is removed, but for the pictures that were drawn there."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with contextlib.chdir(folder):
                yield
        finally:
            for picture in sorted(Path(folder).glob("*.svg")):
                pictures.mkdir(parents=True, exist_ok=True)
                shutil.copy(picture, pictures)
                print(f"picture: {pictures / picture.name}")


def pages_of(names: list[Path]) -> list[Path]:
    """Return the chapters that are named; a name that is no page ends the program."""
    for page in names:
        if page.suffix != ".md" or not page.is_file():
            sys.exit(f"there is no page {page}: name one, such as docs/en/03-scaled-dot-product.md")
    return [page.resolve() for page in names] or chapters(LANGUAGES[0])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run chapters of the book.")
    parser.add_argument("verb", choices=("run", "pictures"), help="run them, or draw docs/pictures")
    parser.add_argument("pages", nargs="*", type=Path, help="pages to run (default: all chapters)")
    parser.add_argument(
        *("--output", "-o"),
        type=Path,
        default=Path("book_output"),
        help="folder for the pictures of a run (default: book_output)",
    )
    parser.add_argument("--here", action="store_true", help="run in the current folder")
    options = parser.parse_intermixed_args(arguments)
    if options.verb == "pictures":
        keep_pictures_the_same()
        import book_map  # imports this module

        book_map.write()
    pages = pages_of(options.pages)
    if options.output.is_file():
        sys.exit(f"--output {options.output} is a file: name a folder for the pictures")
    output = DOCS / "pictures" if options.verb == "pictures" else options.output.resolve()
    with contextlib.nullcontext() if options.here else elsewhere(output):
        faults = [f"{page.name}: {fault}" for page in pages for fault in run(page)]
    if faults:
        print(*faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
