"""The book as a site and its chapters as notebooks: the hooks of `make docs`, see docs/mkdocs."""

import html
import re
from pathlib import Path
from typing import Any

import nbformat
from book import SYSTEMS, chapters
from book_files import code_page, relinked, sources
from book_formulas import mathml
from book_notebooks import COLAB, colab, notebook
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

NAMES = {"en": "English", "zh": "中文"}
SECTIONS = {"en": ("The systems", "The work", "Reference"), "zh": ("各个系统", "动手", "参考")}
NOTEBOOK = {"en": "Open as a notebook", "zh": "作为笔记本打开"}
# A paragraph that links to an attention page, which the site shows below it.
LIVE = re.compile(r'<p>(?:(?!</p>).)*<a href="([^":]*pictures/[^":]*\.html)">.*?</p>', re.S)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def language_of(config: MkDocsConfig) -> str:
    return Path(config.docs_dir).name


def where(config: MkDocsConfig) -> tuple[str, str]:
    """Return the language of a site and the repository of the book, as owner/name or empty."""
    return language_of(config), config.extra["repository"]


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
        page.meta["notebook"] = notebook(moved, page.file.src_uri, *where(config))
    return moved


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if source_of(page, config).suffix == ".py":
        names = re.findall(r'<span id="([\w.]+)">', content)
        page.toc.items[0].children = [AnchorLink(name, name, 2) for name in names]
        return content
    content = FORMULA.sub(formula, content)
    content = LIVE.sub(r'\g<0><iframe class="book-live" src="\1" loading="lazy"></iframe>', content)
    if not is_chapter(page.file.src_uri):
        return content
    language, name = language_of(config), page.file.src_uri
    links = [f'<a href="{name.replace(".md", ".ipynb")}" download>{NOTEBOOK[language]}</a>']
    if address := colab(name, *where(config)):
        links.append(f'<a href="{address}">{COLAB[language]}</a>')
    opened = f'<p class="book-notebook">{" · ".join(links)}</p>'
    return content.replace("</h1>", f"</h1>\n{opened}", 1)


def formula(match: re.Match) -> str:
    try:
        return mathml(html.unescape(match[2]), is_block=match[1] == "div")
    except ValueError as error:
        raise PluginError(str(error)) from error


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
