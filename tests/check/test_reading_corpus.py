"""Every form of hostile.toml is named and not run; every form of honest.toml is run.

hostile.toml is for others, too: name, kind, reason and smallest form of what passed as harmless in
some version of this reader, or in the readers of others.
"""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from hf_tformer.checking import check, names
from hf_tformer.checking.findings import dangers
from support.broken_models import FILE, prepend, write_foreign
from support.corpus import OTHER, forms_of
from support.judged_code import found_in, stops

HOSTILE, HONEST = forms_of("hostile"), forms_of("honest")


def name_of(form):
    return form["name"]


@pytest.mark.parametrize("form", HOSTILE, ids=name_of)
def test_a_hostile_form_is_named(form):
    assert stops(form["kind"])
    assert form["kind"] in {found.kind for found in found_in(form["code"], other=OTHER)}


@pytest.mark.parametrize("form", HONEST, ids=name_of)
def test_an_honest_form_is_not_held_back(form):
    found = found_in(form["code"], other=OTHER)
    assert not [one for one in found if stops(one.kind)]


def test_the_corpus_says_why():
    assert len(HOSTILE) >= 200
    assert len(HONEST) >= 40
    assert all(count == 1 for count in Counter(map(name_of, HOSTILE + HONEST)).values())
    assert all(set(form) == {"name", "kind", "why", "code"} for form in HOSTILE)
    assert all(form["why"].endswith(".") and form["kind"] in names.KINDS for form in HOSTILE)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_foreign(tmp_path_factory.mktemp("sound") / "sound")


def findings_with(sound, tmp_path, code):
    folder = Path(shutil.copytree(sound, tmp_path / "folder"))
    prepend(folder / FILE, code)
    return check(folder, run=False)


def test_code_that_is_not_understood_is_a_warning_and_does_not_run(sound, tmp_path):
    findings = findings_with(sound, tmp_path, "from tqdm import tqdm\ntqdm([]).fp\n")
    (held,) = dangers(findings)
    assert held.verdict == "warn"
    assert held.detail.startswith(f"not understood: {FILE}:2 fp")


def test_a_comment_that_torch_jit_evaluates_is_code(sound, tmp_path):
    code = (
        "import torch\n@torch.jit.script\ndef f(x):\n    # type: (int) -> print(1)\n    return x\n"
    )
    (held,) = dangers(findings_with(sound, tmp_path, code))
    assert f"eval: {FILE}:4 # type: (int) -> print(1)" in held.detail


@pytest.mark.parametrize("comment", ["# type: (Tensor, List[int]) -> int", "# type: ignore[call]"])
def test_a_comment_with_a_type_is_none(comment, sound, tmp_path):
    code = f"import torch\n@torch.jit.script\ndef f(x):\n    {comment}\n    return x\n"
    assert not dangers(findings_with(sound, tmp_path, code))


def test_a_module_that_is_missing_is_named_once_and_with_its_package(sound, tmp_path):
    code = "try:\n    import fla\nexcept ImportError:\n    pass\nfrom fla.layers import x\n"
    findings = findings_with(sound, tmp_path, code)
    (line,) = [f.detail for f in findings if f.name == "absolute imports" and "fla" in f.detail]
    assert f"{FILE}:5: fla (the package flash-linear-attention) has to be installed" in line


def test_the_corpus_is_read_by_others_as_json():
    assert json.loads(json.dumps(HOSTILE)) == HOSTILE


def test_a_list_of_tied_weights_is_named(sound, tmp_path):
    code = "class A:\n    _tied_weights_keys = ['lm_head.weight']\n"
    findings = findings_with(sound, tmp_path, code)
    (line,) = [f for f in findings if f.name == "tied names"]
    assert line.verdict == "fail"
    assert f"{FILE}:2: _tied_weights_keys is a list" in line.detail
