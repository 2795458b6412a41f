"""The attention page and bertviz: written, opened in a browser, and asked for another picture.

bertviz draws with scripts that it loads from a server. Here the browser gets them from npm's
packages: those in the folder BERTVIZ_SCRIPTS (a node_modules), or installed for the occasion.
A picture is there when the page has had two frames after its script drew it; the time of the
graphics after that is not counted.
"""

import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hf_tformer.view import AttentionMap, AttentionMaps

from .measure import OURS, Absent

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

LIMIT = 120.0  # seconds for one thing
LONG = 10.0  # what takes longer is not repeated
ROUNDS = 3
MEMORY = 12 * 2**30  # of the process that writes
SCRIPTS = {  # end of its address → the package (bertviz asks for jQuery 2.0.0, which npm lacks)
    "require.min.js": ("requirejs@2.3.6", "requirejs/require.js"),
    "d3.min.js": ("d3@5.7.0", "d3/dist/d3.min.js"),
    "jquery.min.js": ("jquery@2.1.0", "jquery/dist/jquery.min.js"),
}
TWO_FRAMES = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(true)))))"""


class Failed(Exception):  # noqa: N818 (a finding)
    """A viewer that cannot do something here, and why."""


@dataclass(frozen=True)
class Viewer:
    name: str
    write: Callable  # weights [layers, heads, tokens, tokens], tokens, path
    open: Callable  # page: waits for the first picture
    change: Callable  # page: asks for another, and waits for it


def write_ours(weights: torch.Tensor, tokens: list[str], path: Path) -> None:
    AttentionMaps(decoder=AttentionMap("decoder", weights, tokens, tokens)).save_html(path)


def write_bertviz(name: str, weights: torch.Tensor, tokens: list[str], path: Path) -> None:
    import bertviz

    attention = [layer[None] for layer in weights]
    view = getattr(bertviz, name)(attention, tokens, html_action="return")
    path.write_text(view.data, encoding="utf-8")


def drawn(page: "Page", number: int = 1) -> None:
    page.wait_for_selector(f"body[data-drawn='{number}']")


def open_grid(page: "Page") -> None:
    drawn(page, 1)
    page.keyboard.press("2")
    drawn(page, 2)


def choose_layer(page: "Page") -> None:
    page.keyboard.press("ArrowRight")
    drawn(page, 2)


def choose_cell(page: "Page") -> None:
    page.locator(".cell").nth(3).dispatch_event("click")
    drawn(page, 3)


def wait_for_lines(page: "Page") -> None:
    page.wait_for_selector("#vis line", state="attached")


def choose_layer_in_bertviz(page: "Page") -> None:
    layers = page.locator("#layer")
    layers.evaluate("layers => layers.value = '1'")
    layers.dispatch_event("change")


def choose_thumbnail(page: "Page") -> None:
    thumbnail = page.locator("#vis .attn_background").nth(3)
    thumbnail.locator("xpath=../*[last()]").dispatch_event("click")  # its cover
    page.wait_for_selector("#vis .detail line", state="attached")


OURS_OF_A_LAYER = Viewer(OURS, write_ours, drawn, choose_layer)
OURS_OF_ALL = Viewer(OURS, write_ours, open_grid, choose_cell)
HEAD_VIEW, MODEL_VIEW = (
    Viewer(f"bertviz {name}", partial(write_bertviz, name), wait_for_lines, change)
    for name, change in (("head_view", choose_layer_in_bertviz), ("model_view", choose_thumbnail))
)


def time_writing(viewer: Viewer, make_weights: Callable[[], tuple], path: Path) -> float:
    """Return seconds; `make_weights` gives the weights and tokens, in the process that writes.

    A process that ends without an answer ends the benchmark, too.
    """
    if "bertviz" in viewer.name and not (find_spec("bertviz") and find_spec("IPython")):
        raise Absent("bertviz or ipython is not installed")
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=write_repeatedly, args=(viewer.write, make_weights, path, sender)
    )
    process.start()
    sender.close()
    times = []
    try:
        while len(times) < ROUNDS and (not times or times[-1] < LONG):
            if not receiver.poll(LIMIT):
                raise Failed(f"not written after {LIMIT:.0f} s")
            answer = receiver.recv()
            if isinstance(answer, str):
                raise Failed(answer)
            times.append(answer)
    finally:
        process.kill()
        process.join()
    return statistics.median(times)


def write_repeatedly(
    write: Callable[..., None], make_weights: Callable[[], tuple], path: Path, sender: Connection
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    weights, tokens = make_weights()
    try:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            write(weights, list(tokens), path)
            sender.send(time.perf_counter() - start)
    except MemoryError:
        sender.send(f"not written: {MEMORY >> 30} GiB of memory do not suffice")


def time_opening(viewer: Viewer, path: Path) -> list[float]:
    """Return the seconds to the first picture, and from there to another."""
    rounds = []
    while len(rounds) < ROUNDS and (not rounds or sum(rounds[-1]) < LONG):
        rounds.append(open_once(viewer, path))
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def open_once(viewer: Viewer, path: Path) -> tuple[float, float]:
    from playwright.sync_api import Error
    from playwright.sync_api import TimeoutError as TooLate

    scripts = served_scripts() if viewer in (HEAD_VIEW, MODEL_VIEW) else {}
    with browser_page(scripts) as page:
        try:
            start = time.perf_counter()
            page.goto(path.as_uri(), wait_until="commit")
            viewer.open(page)
            page.wait_for_function(TWO_FRAMES)
            middle = time.perf_counter()
            viewer.change(page)
            page.wait_for_function(TWO_FRAMES)
            return middle - start, time.perf_counter() - middle
        except TooLate as error:
            raise Failed(f"no picture after {LIMIT:.0f} s") from error
        except Error as error:  # the page crashed
            raise Failed(f"no picture: {str(error).splitlines()[0]}") from error


def pictures_without_network(path: Path) -> int:
    """Count the pictures that a page draws where nothing can be loaded."""
    with browser_page({}) as page:
        page.goto(path.as_uri())
        page.wait_for_timeout(2000)
        return page.locator("svg, canvas").count()


@contextmanager
def browser_page(scripts: dict[str, Path]) -> "Iterator[Page]":
    """Open a page of a fresh browser that can load its own file and `scripts`, nothing else."""

    def answer(route: "Route") -> None:
        script = scripts.get(route.request.url.rsplit("/", 1)[-1])
        if script is None:
            route.abort()
        else:
            route.fulfill(path=script, content_type="text/javascript")

    sync_playwright, chromium = browser()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": 1200, "height": 850})
        page.set_default_timeout(LIMIT * 1000)
        page.route(lambda url: not url.startswith("file:"), answer)
        try:
            yield page
        finally:
            opened.close()


def browser() -> tuple[Any, str]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise Absent("playwright is not installed") from error
    if chromium is None:
        raise Absent("there is no chromium")
    return sync_playwright, chromium


@cache
def served_scripts() -> dict[str, Path]:
    folder = os.environ.get("BERTVIZ_SCRIPTS") or installed_scripts()
    paths = {name: Path(folder, place) for name, (_, place) in SCRIPTS.items()}
    if missing := [str(path) for path in paths.values() if not path.is_file()]:
        raise Absent(f"there is no {missing[0]}")
    return paths


def installed_scripts() -> Path:
    if not shutil.which("npm"):
        raise Absent("there is no npm, and no BERTVIZ_SCRIPTS")
    served_scripts.folder = tempfile.TemporaryDirectory()  # as long as the process
    folder = served_scripts.folder.name
    packages = [package for package, _ in SCRIPTS.values()]
    if subprocess.run(["npm", "install", "--silent", *packages], cwd=folder).returncode:
        raise Absent("npm cannot install the scripts of bertviz")
    return Path(folder, "node_modules")
