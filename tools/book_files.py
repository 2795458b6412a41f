"""The files that the site of the book has, and the links between them.

A link of the book leads to a file of the repository. The site has that file too: code as a page
with an anchor for each name, another markdown file as a page, a picture as it is.
"""

import posixpath
import re
from functools import cache
from pathlib import Path

from book import DOCS, FENCE, LANGUAGES, LINK, ROOT, chapters, definitions, links
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

SHOWN = {".md", ".py", ".svg", ".png", ".html"}
BADGE = re.compile(r"\[?!\[[^\[\]]*\]\(https?://[^)]*\)(\]\([^)]*\))? ?")  # lies elsewhere
TEXT_LINK = re.compile(rf"{FENCE.pattern}|\[(?P<name>[^\[\]]*){LINK.pattern}", re.M | re.S)


@cache
def sources(language: str) -> dict[str, Path]:
    """Return the files that the book links to, directly or not, by their place in the site."""
    todo = [page for each in LANGUAGES for page in chapters(each)]
    found = set(todo)
    for page in todo:
        targets = {(page.parent / path).resolve() for path, _ in links(page) if path}
        new = {path for path in targets - found if path.is_file() and path.suffix in SHOWN}
        found |= new
        todo += [path for path in new if path.suffix == ".md"]
    # Of two files with one place, that in the language of the site comes last.
    ordered = sorted(found, key=lambda path: (is_chinese(path) == (language == "zh"), path))
    return {place(path): path for path in ordered}


def is_chinese(path: Path) -> bool:
    return path.parent.name == "zh" or path.stem.endswith(".zh-CN")


def place(path: Path) -> str:
    """Return the place of a file in the site, the same for both languages of a page."""
    if path.parent.parent == DOCS:
        return path.name if path.parent.name in LANGUAGES else path.relative_to(DOCS).as_posix()
    name = f"files/{path.relative_to(ROOT).as_posix()}".replace(".zh-CN.md", ".md")
    name = name.replace("README", "readme")  # mkdocs gives the other spelling another name
    return f"{name}.md" if path.suffix == ".py" else name


def relinked(markdown: str, page: Path) -> str:
    """Link to the same files in the site; those it does not show are only named, without badges."""

    def moved(match: re.Match) -> str:
        path, name = match[4], match[5]
        if not path:
            return match[0]
        target = (page.parent / path).resolve()
        if not target.exists():
            raise FileNotFoundError(f"{page.name} links to {path}")
        if target.is_dir() or target.suffix not in SHOWN:
            return match["name"]
        where = posixpath.relpath(place(target), posixpath.dirname(place(page)) or ".")
        return f"[{match['name']}]({where}{f'#{name}' if name else ''})"

    return TEXT_LINK.sub(moved, BADGE.sub("", markdown))


def code_page(path: Path) -> str:
    code = path.read_text(encoding="utf-8")
    lines = highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).splitlines()
    for name, line in definitions(path).items():
        lines[line - 1] = f'<span id="{name}">{lines[line - 1]}</span>'
    shown = "".join(f"<span>{line}\n</span>" for line in lines)
    title = path.relative_to(ROOT).as_posix()
    return (
        f"---\nsearch: {{exclude: true}}\n---\n# `{title}`\n\n"
        f'<div class="highlight"><pre><code>{shown}</code></pre></div>\n'
    )
