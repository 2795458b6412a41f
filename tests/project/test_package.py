"""The package as a guest in someone else's process: cheap to import, and silent."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hf_tformer
from hf_tformer.families import FAMILIES

ROOT = Path(hf_tformer.__file__).parent
MODEL_FILES = sorted(path for path in (ROOT / "model").glob("*.py") if path.name != "__init__.py")


def run_python(code, *arguments):
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, *arguments],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run


AUTO = "from transformers import AutoConfig, AutoModel"
MODELING = "transformers.models.auto.modeling_auto"


def test_importing_the_package_loads_neither_torch_nor_transformers():
    heavy = "{'torch', 'transformers', 'numpy'}"
    code = f"import sys, hf_tformer; print(sorted({heavy} & set(sys.modules)))"
    assert run_python(code).stdout.strip() == "[]"


def print_each(programs):
    """The words that programs print, each in a process of its own."""
    return [word for program in programs for word in run_python(program).stdout.split()]


ORDERS = [
    f"import hf_tformer; {AUTO}",
    f"{AUTO}; import hf_tformer",
    f"from hf_tformer.model.modeling_seq2seq import shift_tokens_right; {AUTO}",
    f"from hf_tformer import TformerDecoderConfig; {AUTO}",
    f"import transformers, hf_tformer; {AUTO}",
    f"from transformers import AutoConfig; import hf_tformer; {AUTO}",
    f"import transformers.models.auto.configuration_auto, hf_tformer; {AUTO}",
    f"import transformers.models.auto.modeling_auto, hf_tformer; {AUTO}",
    f"import hf_tformer, importlib.util as u; u.find_spec('{MODELING}'); {AUTO}",
]


@pytest.mark.usefixtures("warm_python")
def test_both_families_answer_to_the_auto_classes_in_every_order_of_imports():
    code = """
for name in ("tformer_decoder", "tformer_seq2seq"):
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16, "vocab_size": 11}
    print(type(AutoModel.from_config(AutoConfig.for_model(name, **sizes))).__module__)
"""
    modules = ["hf_tformer.model.modeling_decoder", "hf_tformer.model.modeling_seq2seq"]
    assert print_each(order + code for order in ORDERS) == modules * len(ORDERS)


@pytest.mark.usefixtures("warm_python")
def test_anything_of_transformers_may_be_imported_after_the_package():
    """transformers imports its Auto classes in the middle of the files that models are built on."""
    names = "PreTrainedModel Trainer LlamaForCausalLM GenerationMixin AutoTokenizer pipeline"
    programs = [
        f"""
import hf_tformer
from transformers import {name}
from transformers import AutoConfig, AutoModelForCausalLM
config = AutoConfig.for_model("tformer_decoder", hidden_size=16, vocab_size=11)
print(type(AutoModelForCausalLM.from_config(config)).__name__)
"""
        for name in names.split()
    ]
    assert print_each(programs) == ["TformerDecoderForCausalLM"] * len(programs)


@pytest.mark.usefixtures("warm_python")
def test_importing_a_configuration_alone_does_not_need_the_models():
    code = (
        "import hf_tformer; from transformers import AutoConfig; "
        "print(AutoConfig.for_model('tformer_decoder').vocab_size)"
    )
    assert run_python(code).stdout.strip() == "32000"


ROOMS = [
    "import hf_tformer.checking.reading, hf_tformer.publishing.card",
    "import hf_tformer.publishing, hf_tformer.checking; import hf_tformer.view",
    "from hf_tformer.checking import reading; from hf_tformer.publishing.card import table",
    "from hf_tformer import check, publish; import hf_tformer.checking.report",
    "import hf_tformer; hf_tformer.publish; import hf_tformer.publishing.card",
    "import conversion, hf_tformer.checking.command, hf_tformer.publishing.command, hf_tformer",
    "import hf_tformer.refreshing.command; from hf_tformer.refreshing import card",
]


@pytest.mark.usefixtures("warm_python")
def test_check_publish_and_refresh_are_functions_in_every_order_of_imports():
    code = """
import hf_tformer, types
from hf_tformer import check, publish, refresh
for function in (hf_tformer.check, hf_tformer.publish, hf_tformer.refresh, check, publish, refresh):
    assert isinstance(function, types.FunctionType), function
from hf_tformer.checking import reading
from hf_tformer.publishing import card
assert isinstance(reading, types.ModuleType) and isinstance(card, types.ModuleType)
hf_tformer.check = "replaced, as a test would"
print(hf_tformer.check == "replaced, as a test would")
"""
    assert print_each(order + code for order in ROOMS) == ["True"] * len(ROOMS)


@pytest.mark.usefixtures("warm_python")
def test_any_module_of_the_fast_paths_may_be_the_first_that_is_imported():
    """It imports families, which others of these modules complete as soon as they are there."""
    code = """
import importlib, os, sys
import transformers.modeling_utils
for name in sys.argv[1:]:
    if not os.fork():
        importlib.import_module(name)
        from hf_tformer.model.modeling_decoder import TformerDecoderModel
        os._exit("fast" not in TformerDecoderModel.run_layers.__code__.co_filename)
    print(name, os.wait()[1])
"""
    names = [f"hf_tformer.fast.{path.stem}" for path in (ROOT / "fast").glob("[!_]*.py")]
    assert run_python(code, *names).stdout.split("\n")[:-1] == [f"{name} 0" for name in names]


def test_every_registered_name_is_public_and_every_public_name_exists():
    for family in FAMILIES.values():
        assert {family.config, *family.models.values()} <= set(hf_tformer.__all__)
    for name in hf_tformer.__all__:
        assert getattr(hf_tformer, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = hf_tformer.Nonsense


def test_the_auto_map_of_a_configuration_names_what_is_registered():
    for model_type, family in FAMILIES.items():
        config = getattr(hf_tformer, family.config)()
        assert config.model_type == model_type
        assert config.auto_map == family.auto_map()


# What may travel of the standard library: modules that compute, and reach nothing outside.
COMPUTING = {"collections.abc", "copy", "dataclasses", "functools", "math", "operator", "typing"}


def imported_names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module, [alias.name for alias in node.names]


@pytest.mark.parametrize("path", MODEL_FILES, ids=lambda path: path.name)
def test_a_file_that_travels_imports_only_what_every_reader_has(path):
    siblings = {file.stem for file in MODEL_FILES}
    for level, module, _ in imported_names(path):
        if level:
            assert level == 1, f"{module}: only siblings travel"
            assert module in siblings, (
                f"{module}: `from . import x` is not copied with a checkpoint"
            )
        else:
            root = module.split(".")[0]
            assert root in {"torch", "transformers"} or module in COMPUTING, (
                f"{module} would have to be installed"
            )
            assert module != "__future__", (
                "postponed annotations switch the checks of a configuration off"
            )


def test_transformers_finds_in_our_files_the_imports_that_are_there():
    """Its scanner reads lines: one in a docstring may be taken for an import."""
    from transformers.dynamic_module_utils import get_imports, get_relative_imports

    for path in MODEL_FILES:
        declared = {module for level, module, _ in imported_names(path) if level}
        assert set(get_relative_imports(path)) == declared
        allowed = {"torch", "transformers"} | {module.split(".")[0] for module in COMPUTING}
        assert set(get_imports(path)) <= allowed


FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "open",
    "system",
    "popen",
    "urlopen",
    "set_num_threads",
    "set_default_dtype",
    "set_grad_enabled",
    "manual_seed",
    "use_deterministic_algorithms",
}
FORBIDDEN_MODULES = {
    "os",
    "subprocess",
    "socket",
    "urllib",
    "requests",
    "http",
    "shutil",
    "pickle",
    "ctypes",
}


@pytest.mark.parametrize("path", MODEL_FILES, ids=lambda path: path.name)
def test_a_file_that_travels_touches_nothing_but_tensors(path):
    """No network, no processes, no files, no evaluated text, no environment, no global flags of
    torch."""
    assert not {module.split(".")[0] for _, module, _ in imported_names(path)} & FORBIDDEN_MODULES
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            assert name not in FORBIDDEN_CALLS, f"{path.name}:{node.lineno} calls {name}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"environ", "backends", "putenv"}, f"{path.name}:{node.lineno}"


def test_no_forward_branches_on_the_configuration():
    """A choice is made once, in a constructor, by building this leaf or that one."""
    for path in MODEL_FILES:
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(function, ast.FunctionDef) and function.name == "forward"):
                continue
            for node in ast.walk(function):
                if isinstance(node, (ast.If, ast.IfExp)):
                    assert "config" not in ast.unparse(node.test), f"{path.name}:{node.lineno}"


def test_everything_taken_from_transformers_exists():
    """One list of what a new release must still have: the names our files import."""
    for path in [*MODEL_FILES, ROOT / "registration.py"]:
        for level, module, names in imported_names(path):
            if not level and module.startswith("transformers"):
                home = importlib.import_module(module)
                missing = [name for name in names or [] if not is_there(home, name)]
                assert not missing, f"{path.name}: {module} has no {missing}"


def is_there(home, name):
    """As an attribute, or as a module of the package."""
    return hasattr(home, name) or importlib.util.find_spec(f"{home.__name__}.{name}") is not None


def test_the_version_moves_with_the_changelog():
    """The project file has none of its own: setuptools reads the package's."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    attribute = project["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert attribute == "hf_tformer.__version__"
    changes = (ROOT.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changes, re.MULTILINE)[1]
    assert newest == hf_tformer.__version__
