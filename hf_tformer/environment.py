"""`tformer env`: print what an issue report needs to say about the machine and what is installed.

Each fact is found by a function of its own. One that fails is printed with its error and stops no
other, because reports are written where something does not work.
"""

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from . import __version__, fast
from .checking.behind_walls import run_behind_walls, temporary_folder
from .command_line import Parser

GIB = 1 << 30
GROUP = Path("/sys/fs/cgroup")
PACKAGES = (
    *("transformers", "safetensors", "accelerate", "huggingface-hub", "tokenizers", "numpy"),
    *("peft", "trl", "sentence-transformers", "torchao", "flash-attn"),
)
OPTIONAL = PACKAGES[PACKAGES.index("peft") :]  # are left out where they are not installed


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Print what an issue report needs: versions, processor, memory, fast paths and "
        "walls. Names of users, home folders, tokens and other environment variables stay out.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one string per fact")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer env") -> int:
    args = build_parser(prog).parse_args(arguments)
    found = collect()
    if args.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        width = max(map(len, found)) + 2
        print("\n".join(f"{name:{width}}{value}" for name, value in found.items()))
    return 0


def collect() -> dict[str, str]:
    """Return every fact by its name, in the order in which they are printed."""
    found = {"hf_tformer": __version__, **{name: fact(find) for name, find in MACHINE.items()}}
    found["torch"] = fact(torch_build)
    for name in PACKAGES:
        version = fact(partial(version_of, name))
        if version != MISSING or name not in OPTIONAL:
            found[name] = version
    return found | {name: fact(find) for name, find in ABILITIES.items()}


def fact(find: Callable[[], str]) -> str:
    """Return what a function finds on one line, or the error that it raises."""
    try:
        value = find()
    except Exception as error:  # whatever is broken here is what the report is about
        value = f"unknown ({type(error).__name__}: {error})"
    return " ".join(without_user(value).split())


def without_user(text: str) -> str:
    """Return a text in which the home is "~", and folders elsewhere do not name the user."""
    home = Path.home()
    for path in {str(home), os.path.realpath(home)} - {home.anchor}:
        text = re.sub(re.escape(path) + r"(?![\w.-])", "~", text)
    if home.name:
        text = re.sub(rf"(?<=[/\\]){re.escape(home.name)}(?![\w.-])", "USER", text)
    return text


MISSING = "not installed"


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return MISSING


def python() -> str:
    return f"{platform.python_version()} ({platform.python_implementation()})"


def processor() -> str:
    """Return the name of the processor and its architecture."""
    name = platform.processor()
    if sys.platform == "linux":
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if named := re.search(r"^(?:model name|Model)\s*: (.+)$", text, re.M):
            name = named[1]
    elif sys.platform == "darwin":
        name = output_of("sysctl", "-n", "machdep.cpu.brand_string")
    return f"{name or 'unknown'}, {platform.machine()}"


def cores() -> str:
    """Return the numbers of visible and usable cores; a container may allow a share of them."""
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count()
    quota = ""
    if limit := limit_of_group("cpu.max"):
        share, _, period = limit.partition(" ")
        quota = f", limited to {int(share) / int(period):.3g} by the container"
    return f"{os.cpu_count()} visible, {usable} usable{quota}"


def memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = limit_of_group("memory.max")
    quota = f", limited to {int(limit) / GIB:.1f} GiB by the container" if limit else ""
    return f"{total / GIB:.1f} GiB{quota}"


def limit_of_group(name: str) -> str:
    """Return the limit that a control group of Linux sets, or "" where there is none."""
    file = GROUP / name
    text = file.read_text(encoding="utf-8").strip() if file.exists() else "max"
    return "" if text.startswith("max") else text


def torch_build() -> str:
    """Return torch's version and what it was built for."""
    import torch

    kind = "CPU"
    if torch.version.cuda:
        kind = f"CUDA {torch.version.cuda}"
    elif getattr(torch.version, "hip", None):
        kind = f"ROCm {torch.version.hip}"
    return f"{torch.__version__} ({kind})"


def accelerators() -> str:
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return "none"
    names = [device.type] * torch.accelerator.device_count()
    if device.type == "cuda":
        names = [torch.cuda.get_device_name(number) for number in range(len(names))]
    return ", ".join(names)


def threads() -> str:
    import torch

    return f"{torch.get_num_threads()} within operations, {torch.get_num_interop_threads()} between"


def attention() -> str:
    """Return the attention backends that can be chosen here; torch itself brings SDPA."""
    from transformers import utils

    found = ["eager", "sdpa"]
    if utils.is_torch_flex_attn_available():
        found.append("flex_attention")
    for number in (2, 3, 4):
        is_available = getattr(utils, f"is_flash_attn_{number}_available", None)
        if is_available and is_available():
            found.append(f"flash_attention_{number}")
    return ", ".join(found)


def compiler() -> str:
    """Return the C++ compiler that torch.compile would call on this system, without its folder."""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    try:
        said = output_of(name, "--version").splitlines()[0]
    except (OSError, IndexError, subprocess.SubprocessError):
        return f"none ({Path(name).name} does not run)"
    return said.replace(name, Path(name).name)


def output_of(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def walls() -> str:
    """Return which walls of `tformer check` stand here; no program is run behind them."""
    with temporary_folder() as work:
        outcome = run_behind_walls(None, work=work, timeout=20)
    stood = outcome.walls or {"all": outcome.reason or "the process that raises them ended early"}
    missing = [f"{name} ({why})" for name, why in stood.items() if why]
    return f"missing: {', '.join(missing)}" if missing else f"all stand: {', '.join(stood)}"


MACHINE: dict[str, Callable[[], str]] = {
    "python": python,
    "platform": platform.platform,
    "processor": processor,
    "cores": cores,
    "memory": memory,
}
ABILITIES: dict[str, Callable[[], str]] = {
    "accelerators": accelerators,
    "threads": threads,
    "attention": attention,
    "fast paths": fast.status,
    "C++ compiler": compiler,
    "walls of check": walls,
}
