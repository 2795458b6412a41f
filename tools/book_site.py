"""The book as a site and its chapters as notebooks: the hooks of `make docs`, see docs/mkdocs."""

import html
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from book import SYSTEMS, chapters
from book_files import code_page, relinked, sources
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

NAMES = {"en": "English", "zh": "中文"}
SECTIONS = {"en": ("The systems", "The work", "Reference"), "zh": ("各个系统", "动手", "参考")}
NOTEBOOK = {"en": "Open as a notebook", "zh": "作为笔记本打开"}
PRINTED = re.compile(r"\s*```text\n(.*?)^```$", re.M | re.S)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def language_of(config: MkDocsConfig) -> str:
    return Path(config.docs_dir).name


def is_chapter(name: str) -> bool:
    return name[:2].isdigit()


def source_of(page: Page, config: MkDocsConfig) -> Path:
    return sources(language_of(config))[page.file.src_uri]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the chapters in their order; the theme shows their own titles."""
    language = language_of(config)
    groups = ([], [], [])
    for name in (page.name for page in chapters(language)):
        if is_chapter(name):
            groups[int(name[:2]) > SYSTEMS].append(name)
        elif name != "index.md":
            groups[2].append(name)
    parts = zip(SECTIONS[language], groups, strict=True)
    config.nav = ["index.md", *({title: pages} for title, pages in parts if pages)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of its folder that the book links to."""
    for name, path in sources(language_of(config)).items():
        if path.suffix == ".py":
            files.append(File.generated(config, name, content=code_page(path)))
        elif files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    path = source_of(page, config)
    if path.suffix == ".py":
        return markdown
    try:
        moved = relinked(markdown, path)
    except FileNotFoundError as error:
        raise PluginError(str(error)) from error
    if is_chapter(page.file.src_uri):
        page.meta["notebook"] = notebook(moved)
    return moved


def notebook(markdown: str) -> nbformat.NotebookNode:
    """Make a notebook of a page of the site: programs are cells, what they print are outputs."""
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


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if source_of(page, config).suffix == ".py":
        names = re.findall(r'<span id="([\w.]+)">', content)
        page.toc.items[0].children = [AnchorLink(name, name, 2) for name in names]
        return content
    content = FORMULA.sub(mathml, content)
    if not is_chapter(page.file.src_uri):
        return content
    name = page.file.src_uri.replace(".md", ".ipynb")
    text = NOTEBOOK[language_of(config)]
    link = f'<p class="book-notebook"><a href="{name}" download>{text}</a></p>'
    return content.replace("</h1>", f"</h1>\n{link}", 1)


def mathml(match: re.Match) -> str:
    is_block = match[1] == "div"
    source = html.unescape(match[2]).replace(r"\arg", r"\operatorname{arg}")
    try:
        made = convert(source, display="block" if is_block else "inline")
    except Exception as error:
        raise PluginError(f"no formula: {source} ({error!r})") from error
    # The converter passes on what it does not support, and closes what was left open.
    if "\\" in made or source.count("{") != source.count("}"):
        raise PluginError(f"no formula: {source}")
    return f'<div class="book-formula">{made}</div>' if is_block else made


def on_page_context(context: Any, page: Page, config: MkDocsConfig, nav: Any) -> Any:
    """Link the switch of languages to the same page."""
    config.extra["alternate"] = [
        {"lang": language, "name": name, "link": f"../{language}/{page.url}"}
        for language, name in NAMES.items()
    ]
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    if made := page.meta.get("notebook"):
        nbformat.write(made, Path(config.site_dir, page.file.src_uri).with_suffix(".ipynb"))
    return output
