"""Chapters of the book as notebooks: programs are cells, what they print and draw are outputs."""

import re
from urllib.parse import urljoin

import jupytext
import nbformat
from book import DOCS

# Colab opens what lies on GitHub: the release puts the notebooks on a branch of this name.
BRANCH = "notebooks"
COLAB = {"en": "Open in Colab", "zh": "在 Colab 中打开"}
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
INSTALL = {
    "en": "# Installs what the chapter imports where it is missing, as on Colab.",
    "zh": "# 在 Colab 等缺少本包的环境中先安装",
}
FOUND = """
import importlib.util
import sys

if importlib.util.find_spec("hf_tformer") is None:
"""
RELEASED = '    %pip install --quiet "hf-tformer[book]"'
# Some chapters import from examples, which is no part of the package.
CLONED = """    !git clone --quiet --depth 1 https://github.com/{repository} repository
    %pip install --quiet "./repository[book]"
    sys.path.insert(0, "repository")"""
SHOW = """

from IPython.display import SVG

SVG("{picture}")"""
PRINTED = re.compile(r"\s*```text\n(.*?)^```$", re.M | re.S)
PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*/([\w-]+\.svg)\)")
DRAWN = re.compile(r'\.savefig\("([\w-]+\.svg)"\)$', re.M)


def notebook(markdown: str, name: str, language: str, repository: str) -> nbformat.NotebookNode:
    """Make a notebook of a page of the site; `repository` is owner/name on GitHub, or empty."""
    made = jupytext.reads(markdown.replace("```bash\n", "```console\n"), fmt="md")
    for cell, below in zip(made.cells, made.cells[1:], strict=False):
        printed = PRINTED.match(below.source)
        if cell.cell_type == "code" and printed:
            cell.outputs = [nbformat.v4.new_output("stream", text=printed[1])]
            below.source = below.source[printed.end() :].lstrip()
    drawn = {picture for cell in made.cells for picture in show_picture(cell)}
    for cell in made.cells:  # what a cell has drawn stands above its description
        if cell.cell_type == "markdown":
            cell.source = relinked(cell.source, language, repository)
            cell.source = PICTURE.sub(
                lambda match: f"*{match[1]}*" if match[2] in drawn else match[0], cell.source
            )
    cells = [cell for cell in made.cells if cell.source]
    made.cells = [*opening(name, language, repository), *cells]
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def show_picture(cell: nbformat.NotebookNode) -> list[str]:
    """Let a cell show the picture that it saves; return its name."""
    saved = DRAWN.findall(cell.source) if cell.cell_type == "code" else []
    for picture in saved:
        cell.source += SHOW.format(picture=picture)
        data = {"image/svg+xml": (DOCS / "pictures" / picture).read_text(encoding="utf-8")}
        cell.outputs = [*cell.outputs, nbformat.v4.new_output("display_data", data=data)]
    return saved


def relinked(markdown: str, language: str, repository: str) -> str:
    """Link to the pages of the site: beside the notebook, or where the repository shows them."""
    text = re.sub(r"(\]\([^):]+)\.md\b", r"\1.html", markdown)
    if not repository:
        return text
    owner, name = repository.split("/")
    site = f"https://{owner}.github.io/{name}/{language}/"
    return re.sub(r"\]\((?!https?:|#)([^)]+)\)", lambda to: f"]({urljoin(site, to[1])})", text)


def colab(name: str, language: str, repository: str) -> str:
    """Return the address of a notebook in Colab; nothing where GitHub does not have it."""
    place = f"{repository}/blob/{BRANCH}/{language}/{name.replace('.md', '.ipynb')}"
    return repository and f"https://colab.research.google.com/github/{place}"


def opening(name: str, language: str, repository: str) -> list[nbformat.NotebookNode]:
    """Return the badge, and the cell that installs what the chapter imports."""
    badge = f"[![{COLAB[language]}]({BADGE})]({colab(name, language, repository)})"
    install = CLONED.format(repository=repository) if repository else RELEASED
    return [
        *([nbformat.v4.new_markdown_cell(badge)] if repository else []),
        nbformat.v4.new_code_cell(f"{INSTALL[language]}{FOUND}{install}"),
    ]
