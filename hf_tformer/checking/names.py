"""Decide whether a name that code refers to is dangerous, harmless or unknown.

A pattern stands for dotted names: `*` for any part between two dots, a final `.**` for the name and
everything below. Where several match, the one with the most letters counts, and of two equal ones
the dangerous one. A name of a library that is not listed as it stands is also judged as what it
means there (definitions.py): `transformers.models.llava.processing_llava.os` as `os`. A person has
to read names that no pattern matches, and modules that are not listed.
"""

import ast
import re
import sys
from functools import cache

from .definitions import defined, module_file, tensor_functions, text_of
from .findings import NOT_UNDERSTOOD
from .known_names import HARMLESS, LISTED
from .known_names_of_objects import ATTRIBUTES, LEADING, PRIVATE, READ_ATTRIBUTES
from .scopes import is_builtin

# kind → (verdict, what the code does, the remedy). "warn" means that a person should read it; code
# that is not understood is a warning, too, but does not run unless somebody says so.
KINDS = {
    "network": ("fail", "reaches for the network", "ship what it needs as files of the repository"),
    "subprocess": ("fail", "starts programs or loads native code", "compute it with torch"),
    "eval": ("fail", "runs text as code", "write the code out"),
    "pickle": (
        "fail",
        "uses pickles, which can run anything",
        "read safetensors or JSON, or use torch.load with weights_only=True",
    ),
    "foreign code": ("fail", "runs another repository's code", "copy what it needs into this one"),
    "hidden import": ("fail", "imports what a reader cannot see", "use an import statement"),
    "insides": ("fail", "reaches into the interpreter", "do without"),
    "secrets": ("fail", "reads keys or private files", "take what it needs as an argument"),
    "tampering": ("fail", "changes code of others", "write a class or a function of its own"),
    "file writes": ("fail", "writes or deletes files", "write in save_... methods only"),
    "hidden text": ("fail", "is not what an editor shows", "write the characters as escapes"),
    "handed on": ("fail", "is passed on whole, out of a reader's sight", "name what is used of it"),
    NOT_UNDERSTOOD: (
        "warn",
        "may do anything, as far as this check can follow",
        "write it plainly",
    ),
    "saved files": ("warn", "writes files where something is saved", "see which"),
    "file reads": ("warn", "reads files or folders", "see which"),
    "environment": (
        "warn",
        "uses os.environ, so it may compute something else on another machine",
        "make it a field of the configuration",
    ),
    "global flags": ("warn", "changes what all code shares", "leave that to the user"),
    "downloads": ("warn", "loads what the configuration names", "let it name this folder"),
    "threads": ("warn", "runs in another thread", "see what"),
    "computed names": (
        "warn",
        "uses names that are not written down",
        "look them up in a dict of those that are allowed",
    ),
    "unknown": ("warn", "is unknown to this check", "see what it does"),
}


def words(text: str) -> set[str]:
    return set(text.split())


LIBRARY_OF_MODEL = {"torch", "transformers", "numpy", "tokenizers", "sentencepiece"}
# Modules that may also be reached as attributes of another one, and mean the same there.
RENAMED = {"np": "numpy"}
ELSEWHERE = {"torch", "transformers", "numpy", "PIL", *RENAMED, *sys.stdlib_module_names}

# Modules that have no business below another one. Others are names of honest functions, as
# torch.select and torch.signal; there, the pattern of the longer name decides.
MODULES_ANYWHERE = words("""
    _io _pickle _socket _sys _thread _weakref ast asyncio atexit builtins codecs concurrent copyreg
    ctypes fsspec gc gzip httpx huggingface_hub importlib inspect io linecache marshal
    multiprocessing os pathlib pickle posix pkgutil posixpath pty requests runpy sched shelve shutil
    socket sqlite3 ssl subprocess sys sysconfig tarfile tempfile threading traceback tracemalloc
    unittest urllib urllib3 bltns webbrowser zipfile zipimport
""")
NO_MODULES = {"numpy.ndarray", "sys.stderr", "sys.stdout"}
ALSO_WORDS = {"ast", "codecs", "inspect", "io", "sched", "gc", "shelve"}
OF_MODULES = {"__version__", "__name__", "__doc__", "__file__", "__all__", "__path__"}
# Modules whose classes code derives from.
BASES = (
    *("transformers.generation.utils", "transformers.modeling_utils", "transformers.cache_utils"),
    *("transformers.configuration_utils", "transformers.tokenization_python"),
    *("transformers.tokenization_utils_base", "transformers.tokenization_utils_tokenizers"),
    *("transformers.processing_utils", "transformers.image_processing_backends"),
    *("transformers.image_processing_utils", "transformers.video_processing_utils"),
    *("transformers.feature_extraction_sequence_utils", "transformers.backbone_utils"),
    "torch.nn.modules.module",
)
SECRET_TEXTS = re.compile(
    r"(?i)\.ssh\b|\bid_(rsa|ed25519|ecdsa)\b|/etc/(passwd|shadow|sudoers)|/proc/|\.aws\b|\.netrc\b"
    r"|\.kube\b|\.docker\b|\.gnupg\b|\.git-credentials|\.pypirc|\.bash_history|\.cache/huggingface"
    r"|huggingface/token\b|\.mozilla\b|wallet\.dat|/dev/(?!null)|/root/|\.npmrc|\.config/(gcloud|gh)\b"
)
SECRET_NAMES = re.compile(
    r"HF_TOKEN|HUGGING_?FACE(_HUB)?_TOKEN|AWS_[A-Z_]*KEY[A-Z_]*|[A-Z_]+_API_KEY|G(IT)?H(UB)?_TOKEN"
)
SECRET_VARIABLES = re.compile(
    r"(?i)token(?!izer|_?id)|secret|passw|credential|(^|_)key|auth|cookie"
)
# Variables that say which programs, libraries and servers other code takes.
STEERING = re.compile(
    r"(LD|DYLD|PYTHON|HF|HUGGINGFACE|TORCHINDUCTOR|TRITON)_?\w*|(CC|CXX|PATH|\w*_PROXY|CUDA_HOME)",
    re.IGNORECASE,
)
INSIDES = re.compile(
    r"__(subclasses|globals|builtins|code|closure|import|loader|reduce|mro|self|spec|traceback"
    r"|getattribute|bases?)_*__|^(tb_frame|tb_next|f_(globals|locals|back|builtins|code)"
    r"|(gi|cr|ag)_(frame|code)|cell_contents)$"
)
HARMLESS_DUNDERS = words("""
    __name__ __qualname__ __class__ __doc__ __module__ __version__ __init__ __new__ __call__ __len__
    __getitem__ __setitem__ __delitem__ __iter__ __next__ __contains__ __enter__ __exit__ __repr__
    __str__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __add__ __sub__ __mul__ __or__
    __and__ __getstate__ __setstate__ __getattr__ __post_init__ __init_subclass__ __all__
    __members__ __torch_function__ __radd__ __rmul__ __bool__ __int__ __float__
    __dataclass_fields__ __set_name__ __class_getitem__ __copy__ __deepcopy__ __file__
""")


@cache
def patterns() -> dict[str, list[tuple[int, bool, str, str, re.Pattern | None]]]:
    """Return (letters, is dangerous, kind, stem, pattern) by name, or by top module with a `*`."""
    table: dict[str, list] = {}
    for kind, listed in LISTED.items():
        library = kind.rpartition(" ")[2] if kind.startswith("harmless, ") else None
        kind = HARMLESS if library else kind
        names = [f"{library}.{name}" if library else name for name in listed.split()]
        for name in [*names, library] if library else names:
            stem = name.removesuffix(".**")
            pattern = None
            if "*" in stem:
                text = re.escape(stem).replace(r"\*", "[^.]*")
                pattern = re.compile(text + (r"(\..*)?" if stem != name else ""))
            row = (len(stem.replace("*", "")), is_dangerous(kind), kind, stem, pattern)
            table.setdefault(f"{name.split('.')[0]}.*" if pattern else name, []).append(row)
    return {key: sorted(rows, key=lambda row: row[:2], reverse=True) for key, rows in table.items()}


@cache
def attribute_kinds() -> dict[str, str]:
    tables = [*READ_ATTRIBUTES.items(), *ATTRIBUTES.items()]
    return {name: kind for kind, names in tables for name in names.split()}


def is_dangerous(kind: str) -> bool:
    return kind == "file deletions" or KINDS.get(kind, ("ok",))[0] == "fail"


@cache
def kind_of(name: str) -> str:
    """Return the kind of a dotted name that begins with a module.

    It is HARMLESS, one of KINDS, or "file deletions": file writes that no save method excuses.
    """
    parts = name.split(".")
    kind, spelled = listed_kind(name)
    kinds = [kind, *(attribute_kind(part) for part in parts[1:])]
    for i in range(1, len(parts)):
        prefix = ".".join(parts[:i])
        if len(spelled) <= i and not is_module(prefix):
            kinds.append(listed_kind(prefix)[0])  # what is read of a function may call it
        is_spelled = spelled[i : i + 1] == [parts[i]]
        is_known = is_spelled or parts[i] in OF_MODULES
        if is_dunder(parts[i]) and not is_known and is_module(prefix):
            kinds.append("insides")
        if parts[i].lstrip("_") in MODULES_ANYWHERE:
            kinds.append("insides")
        elif parts[i] in ELSEWHERE and not is_spelled:
            kind = kind_of(".".join([RENAMED.get(parts[i], parts[i]), *parts[i + 1 :]]))
            kinds.append("unknown" if kind == NOT_UNDERSTOOD else kind)
        elif is_leading(parts[i]) and not is_spelled and parts[0] not in LIBRARY_OF_MODEL:
            is_inner = parts[0] in sys.stdlib_module_names or parts[0] == "tqdm"
            kinds.append(NOT_UNDERSTOOD if is_inner else "unknown")
    if spelled != parts:
        kinds.append(kind_where_defined(name))
    return max(kinds, key=severity)


def kind_where_defined(name: str) -> str:
    """Return the kind of a name of a library as that of what it means there."""
    origin = defined(name)
    if origin is None:
        is_inner = name.startswith("transformers.models.") and name.count(".") > 2
        return "unknown" if is_inner else HARMLESS
    return HARMLESS if origin == name or origin.startswith("numpy.") else kind_of(origin)


@cache
def severity(kind: str) -> int:
    if is_dangerous(kind):
        return 3
    return 0 if kind == HARMLESS else 2 if kind == NOT_UNDERSTOOD else 1


def listed_kind(name: str) -> tuple[str, list[str]]:
    """Return the kind of the pattern that counts, and the parts that it spells."""
    parts, table = name.split("."), patterns()
    rows = list(table.get(name, ()))
    for i in range(len(parts), 0, -1):
        rows += table.get(f"{'.'.join(parts[:i])}.**", ())[:1]
    wild = (row for row in table.get(f"{parts[0]}.*", ()) if row[4] and row[4].fullmatch(name))
    rows += [row for row in [next(wild, None)] if row]
    if rows:
        _, _, kind, stem, _ = max(rows, key=lambda row: row[:2])
        return kind, stem.split(".")
    if parts[0] == "torch" and len(parts) == 2 and parts[1] in tensor_functions():
        return HARMLESS, parts
    if parts[0] in sys.stdlib_module_names:
        return "insides" if parts[0].startswith("_") else NOT_UNDERSTOOD, []
    return "unknown", []


def attribute_kind(name: str) -> str:
    """Return the kind of an attribute of an object that nothing is known about."""
    if kind := attribute_kinds().get(name):
        return kind
    if {name, name.lstrip("_")} & (MODULES_ANYWHERE - ALSO_WORDS):
        return "insides"
    return "unknown" if is_dunder(name) and name not in HARMLESS_DUNDERS else HARMLESS


def is_dangerous_shape(shape: str) -> bool:
    """Return whether a pattern fits an attribute that is dangerous on any object."""
    dangerous = (name for name, kind in attribute_kinds().items() if is_dangerous(kind))
    return any(re.fullmatch(shape, name) for name in dangerous)


def is_leading(name: str) -> bool:
    """Return whether an attribute may lead from a harmless object to a dangerous one."""
    return name in leading() or (is_private(name) and name not in known_private())


@cache
def leading() -> set[str]:
    return words(LEADING)


@cache
def known_private() -> set[str]:
    """Return the private names that honest code uses, and those of transformers' base classes."""
    sources = "".join(map(text_of, BASES))
    return words(PRIVATE) | set(re.findall(r"(?m)(?:def |\.|^    )(_[a-z]\w+)", sources))


def is_private(name: str) -> bool:
    return name.startswith("_") and not is_dunder(name)


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


@cache
def is_module(name: str) -> bool:
    """Return whether the patterns have a dotted name as a module: with other names below it."""
    if name in sys.stdlib_module_names or name in tops():
        return True
    if name.startswith("transformers.") and name.endswith("_MAPPING"):
        return True  # another of its class takes any attribute out of any module of transformers
    if name in modules_of_patterns():
        return True
    origin = defined(name) if name.rpartition(".")[2].islower() else None
    return bool(origin and ((origin != name and is_module(origin)) or module_file(origin)))


@cache
def tops() -> set[str]:
    return {name.split(".")[0] for name in patterns()}


def is_listed(name: str) -> bool:
    """Return whether its top module is listed; for other modules only the import is reported."""
    top = name.split(".")[0]
    return top in tops() or top in sys.stdlib_module_names


def is_wholly_harmless(module: str) -> bool:
    """Return whether a pattern calls everything in a module harmless, known or not."""
    return kind_of(f"{module}.anything") == HARMLESS


@cache
def is_harmless_below(module: str) -> bool:
    """Return whether a module is wholly harmless, and so is every name below it."""
    dangerous = (listed for kind, listed in LISTED.items() if is_dangerous(kind))
    below = (name for listed in dangerous for name in listed.split())
    return is_wholly_harmless(module) and not any(n.startswith(f"{module}.") for n in below)


def calls_dangerous(text: str) -> bool:
    """Return whether a string is an expression that calls a dangerous builtin."""
    if "(" not in text:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = {getattr(node.func, "id", "") for node in ast.walk(tree) if isinstance(node, ast.Call)}
    kinds = {kind_of(f"builtins.{name}") for name in called if is_builtin(name)}
    return "open" in called or any(map(is_dangerous, kinds))


@cache
def modules_of_patterns() -> set[str]:
    """Return every lower-case name that has others below it; only numpy writes a class so."""
    found: set[str] = set()
    for kind, names in LISTED.items():
        library = f"{kind.rpartition(' ')[2]}." if kind.startswith("harmless, ") else ""
        for name in names.split():
            parts = (library + name).split(".")
            stems = (".".join(parts[:i]) for i in range(1, len(parts)))
            found.update(s for s in stems if "*" not in s and s.rpartition(".")[2].islower())
    return {name for name in found - NO_MODULES if not name.startswith("builtins")}
