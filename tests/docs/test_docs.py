"""The site of the book, as `make docs` has just built it: opened from a disk it lacks nothing."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import types
from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from book import DOCS, LANGUAGES, ROOT, chapters, is_same, links, steps

pytestmark = pytest.mark.docs

SITE = ROOT / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
PAGES = [page for language in LANGUAGES for page in chapters(language)]
CHAPTERS = [page for page in PAGES if page.name[0].isdigit()]


class Page(HTMLParser):
    """The ids and links of a page, those to other languages, and what a browser loads for it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads, self.switch = set(), [], [], {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, pairs):
        attributes = dict(pairs)
        self.ids.add(attributes.get("id"))
        if tag == "a":
            self.links.append(attributes.get("href"))
            self.switch[attributes.get("hreflang")] = attributes.get("href")
        elif address := attributes.get("src") or attributes.get("href"):
            self.loads.append(address)


@cache
def parsed(path):
    return Page(path)


def built():
    """The pages that are built: not that of a server without this address, nor attention pages."""
    found = [path for path in SITE.rglob("*.html") if path.name != "404.html"]
    found = [path for path in found if path.parent.name != "pictures"]
    assert len(found) > len(PAGES), "`make docs` builds the site"
    return found


def in_site(page):
    return SITE / page.parent.name / f"{page.stem}.html"


def is_elsewhere(address):
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def name_of(page):
    return f"{page.parent.name}/{page.stem}"


def test_no_page_loads_anything_from_a_network():
    for page in built():
        assert not [address for address in parsed(page).loads if is_elsewhere(address)], page
    for style in SITE.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_link_leads_to_a_file_and_a_place_in_it():
    for page in built():
        for address in filter(None, [*parsed(page).links, *parsed(page).loads]):
            if is_elsewhere(address):
                continue
            path, name = unquote(urlsplit(address).path), unquote(urlsplit(address).fragment)
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), f"{page} links to {address}"
            if name and name != "__skip" and target.suffix == ".html":
                assert name in parsed(target).ids, f"{page} links to {address}"


def test_each_page_switches_to_itself_in_the_other_language():
    for language, other in (LANGUAGES, LANGUAGES[::-1]):
        for page in built():
            if page.is_relative_to(SITE / language):
                target = (page.parent / parsed(page).switch[other]).resolve()
                assert target == SITE / other / page.relative_to(SITE / language)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_that_a_page_names_is_shown_with_an_anchor(page):
    for path, name in links(page):
        if path.endswith(".py"):
            source = (page.parent / path).resolve().relative_to(ROOT)
            assert f"files/{source}.html{f'#{name}' if name else ''}" in parsed(in_site(page)).links
            shown = parsed(SITE / page.parent.name / "files" / f"{source}.html")
            assert not name or name in shown.ids


@pytest.mark.parametrize("page", CHAPTERS, ids=name_of)
def test_formulas_are_shown_without_a_script(page):
    shown = in_site(page).read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert shown.count('<div class="book-formula"><math xmlns="http://www.w3.org/1998/Math/') == (
        len(re.findall(r"^\$\$$", text, re.M)) // 2
    )
    assert "arithmatex" not in shown


@pytest.mark.parametrize("page", CHAPTERS, ids=name_of)
def test_formulas_are_set_as_in_print(page):
    for formula in re.findall(r"<math.*?</math>", in_site(page).read_text(encoding="utf-8")):
        names, fence = r"<m[io]>(?:cos|exp|log|max|min|sin|tanh)</m[io]>", r"mrow><mo[^>]*>\("
        assert not re.search(rf"{names}<(?!mo|mspace|/|{fence})", formula), f"cosp: {formula}"
        assert not re.search(rf"<m([in])>[^<]*</m\1>{names}", formula), f"pcos: {formula}"
        assert "<mi>\u2032</mi>" not in formula, f"a prime that is raised twice: {formula}"
        assert not re.search(r"<mo>[=(←]</mo><mo>\u2212</mo>", formula), f"no sign: {formula}"


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_every_formula_fits_on_the_screen(width):
    with a_browser_page(viewport={"width": width, "height": 800}) as page:
        for chapter in CHAPTERS:
            page.goto(in_site(chapter).as_uri())
            wide = page.eval_on_selector_all(
                ".book-formula",
                """boxes => boxes.filter(box => box.scrollWidth > box.clientWidth
                   || box.scrollHeight > box.clientHeight).map(box => box.textContent)""",
            )
            assert not wide, (chapter, wide)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_search_finds_every_page_of_the_book(language):
    index = (SITE / language / "search" / "search_index.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("var __index = "))
    places = {entry["location"] for entry in found["docs"]}
    assert {in_site(page).name for page in chapters(language)} <= places
    words = {word for entry in found["docs"] for word in re.split(r"[\s\u200b]", entry["text"])}
    assert {"en": "attention", "zh": "注意力"}[language] in words


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["20-seeing-attention.html", "attention-page.html"])
def test_an_attention_page_can_be_tried_inside_the_page_that_tells_of_it(language, name):
    with a_browser_page() as page:
        page.goto((SITE / language / name).as_uri())
        page.locator(".book-live").scroll_into_view_if_needed()
        frame = page.frame_locator(".book-live")
        frame.locator("body[data-drawn]").wait_for()
        assert frame.get_by_text("August").count()


@contextlib.contextmanager
def a_browser_page(**options):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(**options)
        browser.close()


@pytest.mark.parametrize(("language", "word"), [("en", "softmax"), ("zh", "注意力")])
def test_a_browser_searches_on_a_disk_and_asks_no_network(language, word):
    asked = []
    with a_browser_page() as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{(SITE / language / 'index.html').as_uri()}?q={word}")
        found = page.locator(".md-search-result__item h1").all_inner_texts
        page.locator(".md-search-result__item").first.wait_for()
        assert any(" · " in title for title in found()), "a chapter"
    assert all(address.startswith("file:") for address in asked), asked


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_page_names_every_chapter_by_its_title(language):
    index = (DOCS / language / "index.md").read_text(encoding="utf-8")
    for page in chapters(language):
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        if page.name != "index.md":
            assert f"[{title.split(' · ')[-1]}]({page.name})" in index


# Notebooks


def cells(page, kind):
    notebook = json.loads(in_site(page).with_suffix(".ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def joined(lines):
    return "".join(lines)


@pytest.mark.parametrize("page", CHAPTERS, ids=name_of)
def test_a_notebook_has_the_programs_of_its_chapter_and_what_they_print_and_draw(page):
    install, *programs = cells(page, "code")
    assert "%pip install" in joined(install["source"])
    expected = steps(page)
    assert len(programs) == len(expected)
    for cell, step in zip(programs, expected, strict=True):
        assert joined(cell["source"]).startswith(step.code.strip())
        printed = [joined(out["text"]) for out in cell["outputs"] if out["output_type"] == "stream"]
        assert printed == ([] if step.printed is None else [step.printed])
        drawn = re.findall(r'savefig\("([\w-]+\.svg)"\)', step.code)
        assert ["image/svg+xml" in out.get("data", ()) for out in cell["outputs"]].count(True) == (
            len(drawn)
        )
        for picture in drawn:
            assert f'SVG("{picture}")' in joined(cell["source"])
    for cell in cells(page, "markdown"):
        for address in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", joined(cell["source"])):
            assert (in_site(page).parent / address).is_file(), address


def test_a_notebook_runs_from_its_first_cell_to_its_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = []
    display = types.SimpleNamespace(SVG=shown.append)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    names = {}
    for cell in cells(DOCS / "en" / "03-scaled-dot-product.md", "code")[1:]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(joined(cell["source"]), names)
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                assert is_same(joined(output["text"]), printed.getvalue())
    assert shown == ["03-scaled.svg"]
    assert (tmp_path / "03-scaled.svg").exists()


@pytest.fixture
def small_book(tmp_path):
    """A book of one page in which another one can be written; returns how it is built."""
    for folder in ("docs/mkdocs", "tools", "hf_tformer/model"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "docs" / "en").mkdir()

    def build(text, name="index.md", **environment):
        (tmp_path / "docs" / "en" / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [MKDOCS, "build", "--config-file", tmp_path / "docs" / "mkdocs" / "en.yml"],
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1", **environment},
            capture_output=True,
            text=True,
        )
        return done, tmp_path / "site" / "en"

    return build


@pytest.mark.parametrize("repository", ["someone/some-book", ""])
def test_a_notebook_opens_in_colab_where_github_has_it(repository, small_book):
    small_book("# The book\n\n[One](01-one.md)\n")
    program = 'print([len][0]("one"))'  # has what a link has: ](
    page = f"# 1 · One\n\n[The book](index.md)\n\n```python\n{program}\n```\n"
    done, site = small_book(page, "01-one.md", GITHUB_REPOSITORY=repository)
    assert done.returncode == 0, done.stderr
    shown = (site / "01-one.html").read_text(encoding="utf-8")
    notebook = json.loads((site / "01-one.ipynb").read_text(encoding="utf-8"))
    text = ["".join(cell["source"]) for cell in notebook["cells"]]
    address = (
        f"https://colab.research.google.com/github/{repository}/blob/notebooks/en/01-one.ipynb"
    )
    assert ("colab" in shown) == (address in shown) == bool(repository)
    assert text[-1] == program
    if repository:
        assert f"({address})" in text[0]
        assert f"git clone --quiet --depth 1 https://github.com/{repository} " in text[1]
        assert "[The book](https://someone.github.io/some-book/en/index.html)" in text[2]
    else:
        assert '%pip install --quiet "hf-tformer[book]"' in text[0]
        assert "[The book](index.html)" in text[1]


# What may not become a site


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[a name](../../hf_tformer/model/norms.py#RMSNorm), a formula: $x$", None),
        ("[a chapter](99-nowhere.md)", "99-nowhere.md"),
        ("![a picture](../pictures/nowhere.svg)", "nowhere.svg"),
        ("[a name](../../hf_tformer/model/norms.py#Nowhere)", "Nowhere"),
        ("[a heading](index.md#nowhere)", "nowhere"),
        ("a formula: $\\nowhere{x}$", "no formula"),
        ("a formula: $\\frac{1}{2$", "no formula"),
    ],
)
def test_what_a_reader_would_stumble_over_stops_the_build(line, fault, small_book):
    done, _ = small_book(f"# The book\n\n{line}\n")
    assert (done.returncode == 0) == (fault is None), done.stderr
    assert (fault or "") in done.stderr
