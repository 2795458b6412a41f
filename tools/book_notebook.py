"""A chapter of the book as a notebook: its programs as cells, what they print as their outputs."""

import re

import jupytext
import nbformat

PRINTED = re.compile(r"\s*```text\n(.*?)^```$", re.M | re.S)


def notebook(markdown: str) -> nbformat.NotebookNode:
    """`markdown` as the site has it; links lead to the site's pages."""
    text = re.sub(r"(\]\([^):]+)\.md\b", r"\1.html", markdown)
    made = jupytext.reads(text.replace("```bash\n", "```console\n"), fmt="md")
    for cell, below in zip(made.cells, made.cells[1:], strict=False):
        printed = PRINTED.match(below.source)
        if cell.cell_type == "code" and printed:
            cell.outputs = [nbformat.v4.new_output("stream", text=printed[1])]
            below.source = below.source[printed.end() :].lstrip()
    made.cells = [cell for cell in made.cells if cell.source]
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made
