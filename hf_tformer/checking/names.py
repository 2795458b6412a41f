"""Decide whether a name that code refers to is dangerous, harmless or unknown.

A pattern stands for dotted names: `*` for any part between two dots, a final `.**` for the name and
everything below. Where several match, the one with the most letters counts, and of two equal ones
the dangerous one. A person has to read names that no pattern matches, and modules that are not
listed.
"""

import ast
import re
import sys
from functools import cache

from .known_names import HARMLESS, LISTED
from .scopes import is_builtin

# kind → (verdict, what the code does, the remedy). "warn" means that a person should read it.
KINDS = {
    "network": ("fail", "reaches for the network", "ship what it needs as files of the repository"),
    "subprocess": ("fail", "starts programs or loads native code", "compute it with torch"),
    "eval": ("fail", "runs text as code", "write the code out"),
    "pickle": ("fail", "unpickles, which can run anything", "read safetensors or JSON"),
    "foreign code": ("fail", "runs another repository's code", "copy what it needs into this one"),
    "hidden import": ("fail", "imports what a reader cannot see", "use an import statement"),
    "insides": ("fail", "reaches into the interpreter", "do without"),
    "secrets": ("fail", "reads keys or private files", "take what it needs as an argument"),
    "tampering": ("fail", "changes code of others", "write a class or a function of its own"),
    "file writes": ("fail", "writes or deletes files", "write in save_... methods only"),
    "hidden text": ("fail", "is not what an editor shows", "write the characters as escapes"),
    "handed on": ("fail", "hands a module on, out of a reader's sight", "name what is used of it"),
    "saved files": ("warn", "writes files where something is saved", "see what it writes"),
    "file reads": ("warn", "reads files or folders", "see which"),
    "environment": ("warn", "uses os.environ", "pass an argument: other code reads it too"),
    "global flags": ("warn", "changes what all code shares", "leave that to the user"),
    "downloads": ("warn", "loads what the configuration names", "see that it names this folder"),
    "threads": ("warn", "runs in another thread", "see what"),
    "computed names": ("warn", "uses names that are not written down", "see which they can be"),
    "unknown": ("warn", "is not known to this check", "see what it does"),
}


def words(text: str) -> set[str]:
    return set(text.split())


# Modules that may also be reached as attributes of another one, and mean the same there.
RENAMED = {"np": "numpy"}
ELSEWHERE = {"torch", "transformers", "numpy", "PIL", *RENAMED, *sys.stdlib_module_names}

# Attributes that are dangerous on any object, and as part of any longer name.
ATTRIBUTES = {
    "insides": """
        __subclasses__ __globals__ __builtins__ __code__ __closure__ __self__ __loader__ __spec__
        __traceback__ tb_frame tb_next f_globals f_locals f_back f_builtins f_code gi_frame gi_code
        cr_frame cr_code ag_frame ag_code co_code co_consts __getattribute__ __build_class__
        __import__ gi_yieldfrom cell_contents func_globals
    """,
    "pickle": "__reduce__ __reduce_ex__ find_class _rebuild_tensor_v2",
    "eval": """
        make_dataclass ForwardRef _evaluate get_type_hints exec_module load_module run_module
        run_path runcode runsource
    """,
    "network": """
        hf_hub_download snapshot_download cached_file cached_files urlopen urlretrieve push_to_hub
        load_state_dict_from_url download_url_to_file upload_file upload_folder create_repo
        create_connection load_url from_url get_session get_async_session hf_hub_utils
        _upload_modified_files
    """,
    "subprocess": """
        check_output check_call getoutput Popen popen posix_spawn load_library load_inline CDLL
        cpp_extension LoadLibrary PyDLL dlopen create_subprocess_shell create_subprocess_exec
    """,
    "foreign code": """
        get_class_from_dynamic_module get_class_in_module get_cached_module_file get_kernel
        load_custom_generate resolve_trust_remote_code lazy_load_kernel
    """,
    "hidden import": "import_module spec_from_file_location module_from_spec _LazyModule",
    "file deletions": "write_text write_bytes unlink rmdir rmtree symlink_to hardlink_to tofile",
    "file writes": "mkdir save_file to_json_file _dump _write_file",
    "tampering": "_convert_",
    "secrets": "get_token",
}
# Attributes that a person has to look at, on any object.
READ_ATTRIBUTES = {
    "computed names": """
        __dict__ __bases__ __mro__ __base__ mro __wrapped__ __func__ __weakref__ __annotations__
        __prepare__
    """,
    "downloads": """
        set_attn_implementation load_adapter load_dataset load_backbone load_metadata fetch_audio
        fetch_images fetch_videos get_config_dict get_processor_dict get_image_processor_dict
        get_feature_extractor_dict get_video_processor_dict get_tokenizer_config
    """,
    "saved files": "save_pretrained dump save",
    "file reads": "read_text read_bytes iterdir rglob from_file read_file from_json_file",
    "unknown": "show obj handlers _default_handler __del__ __setattr__ __delattr__",
}
# Modules that have no business below another one. Others are names of honest functions, as
# torch.select and torch.signal; there, the pattern of the longer name decides.
MODULES_ANYWHERE = words("""
    _io _pickle _socket _sys _thread _weakref ast asyncio atexit builtins codecs concurrent copyreg
    ctypes fsspec gc gzip httpx huggingface_hub importlib inspect io linecache marshal
    multiprocessing os pathlib pickle posix pkgutil posixpath pty requests runpy sched shelve shutil
    socket sqlite3 ssl subprocess sys sysconfig tarfile tempfile threading traceback tracemalloc
    unittest urllib urllib3 bltns webbrowser zipfile zipimport
""")
ALSO_WORDS = {"ast", "codecs", "inspect", "io", "sched", "gc", "shelve"}
OF_MODULES = {"__version__", "__name__", "__doc__", "__file__", "__all__", "__path__"}
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
INSIDES = re.compile(r"__(subclasses|globals|builtins|code|closure|import|loader|reduce|mro)_*__")
HARMLESS_DUNDERS = words("""
    __name__ __qualname__ __class__ __doc__ __module__ __version__ __init__ __new__ __call__ __len__
    __getitem__ __setitem__ __delitem__ __iter__ __next__ __contains__ __enter__ __exit__ __repr__
    __str__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __add__ __sub__ __mul__ __or__
    __and__ __getstate__ __setstate__ __getattr__ __post_init__ __init_subclass__ __all__
    __members__ __torch_function__ __radd__ __rmul__ __bool__ __int__ __float__
    __dataclass_fields__ __set_name__ __class_getitem__ __copy__ __deepcopy__ __file__
""")


@cache
def patterns() -> dict[str, list[tuple[int, bool, str, str, re.Pattern]]]:
    """Return (letters, is dangerous, kind, stem, pattern) by top module; the first match counts."""
    table: dict[str, list] = {}
    for kind, listed in LISTED.items():
        library = kind.rpartition(" ")[2] if kind.startswith("harmless, ") else None
        kind = HARMLESS if library else kind
        names = [f"{library}.{name}" if library else name for name in listed.split()]
        for name in [*names, library] if library else names:
            below = name.endswith(".**")
            stem = name.removesuffix(".**")
            text = re.escape(stem).replace(r"\*", "[^.]*") + (r"(\..*)?" if below else "")
            row = (len(stem.replace("*", "")), is_dangerous(kind), kind, stem, re.compile(text))
            table.setdefault(name.split(".")[0], []).append(row)
    return {top: sorted(rows, key=lambda row: row[:2], reverse=True) for top, rows in table.items()}


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
        if is_dunder(parts[i]) and parts[i] not in OF_MODULES and is_module(prefix):
            kinds.append("insides")
        if parts[i].lstrip("_") in MODULES_ANYWHERE:
            kinds.append("insides")
        elif parts[i] in ELSEWHERE and not is_spelled:
            kinds.append(kind_of(".".join([RENAMED.get(parts[i], parts[i]), *parts[i + 1 :]])))
        elif is_private(parts[i]) and not is_spelled and parts[0] not in ("torch", "transformers"):
            kinds.append("unknown")
    return max(kinds, key=severity)


def severity(kind: str) -> int:
    return 0 if kind == HARMLESS else 2 if is_dangerous(kind) else 1


def listed_kind(name: str) -> tuple[str, list[str]]:
    """Return the kind of the pattern that counts, and the parts that it spells."""
    top = name.split(".")[0]
    for _, _, kind, stem, pattern in patterns().get(top, ()):
        if pattern.fullmatch(name):
            return kind, stem.split(".")
    is_inner = top.startswith("_") and top in sys.stdlib_module_names
    return "insides" if is_inner else "unknown", []


def attribute_kind(name: str) -> str:
    """Return the kind of an attribute of an object that nothing is known about."""
    if kind := attribute_kinds().get(name):
        return kind
    if {name, name.lstrip("_")} & (MODULES_ANYWHERE - ALSO_WORDS):
        return "insides"
    return "unknown" if is_dunder(name) and name not in HARMLESS_DUNDERS else HARMLESS


def is_private(name: str) -> bool:
    return name.startswith("_") and not is_dunder(name)


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def is_module(name: str) -> bool:
    """Return whether the patterns have a dotted name as a module: with other names below it."""
    if name in sys.stdlib_module_names or name in patterns():
        return True
    if name.startswith("transformers.") and name.endswith("_MAPPING"):
        return True  # another of its class takes any attribute out of any module of transformers
    return name in modules_of_patterns()


def is_listed(name: str) -> bool:
    """Return whether its top module is listed; for other modules only the import is reported."""
    top = name.split(".")[0]
    return top in patterns() or top in sys.stdlib_module_names


def is_wholly_harmless(module: str) -> bool:
    """Return whether a pattern calls everything in a module harmless, known or not."""
    return kind_of(f"{module}.anything") == HARMLESS


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
    return {name for name in found - {"numpy.ndarray"} if not name.startswith("builtins")}
