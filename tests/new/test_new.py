"""`tformer new`: a folder with a model of one's own kind, for which everything works at once."""

import ast
import json
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import hf_tformer
from hf_tformer import fast
from hf_tformer.__main__ import main
from hf_tformer.checking.package_code import package_code
from hf_tformer.checking.same_answers import Comparison
from hf_tformer.new import NewError, write_new, writing
from hf_tformer.refreshing import RefreshError, renewal, replacing
from support.families import random_rows
from support.hub_server import TOKEN, HubServer, environment, online
from support.new_models import PROMISES, build, family_of, folder_of, head_of, package_of, slow

pytestmark = pytest.mark.usefixtures("warm_python")

ROWS = random_rows([5, 7])
LENGTHS = {
    "decoder": 75,
    "encoder": 70,
    "seq2seq": 75,
    "mixture": 75,
}  # lines of its modeling file, at most


def own(family):
    class Own(PROMISES[family]):
        fields = {"first_temperature": 0.7}  # noqa: RUF012

        @cached_property
        def model_class(self):
            return head_of(family)

        test_compile = slow(PROMISES[family].test_compile)

    return Own


class TestDecoder(own("decoder")):
    pass


class TestSeq2Seq(own("seq2seq")):
    test_check = slow(PROMISES["seq2seq"].test_check)
    test_travels = slow(PROMISES["seq2seq"].test_travels)


class TestEncoder(own("encoder")):
    test_check = slow(PROMISES["encoder"].test_check)
    test_travels = slow(PROMISES["encoder"].test_travels)


class TestMixture(own("mixture")):
    test_check = slow(PROMISES["mixture"].test_check)
    test_travels = slow(PROMISES["mixture"].test_travels)


@pytest.mark.slow
@pytest.mark.parametrize("family", PROMISES)
def test_the_tests_of_a_new_folder_pass_at_once(family):
    folder = folder_of(family)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    assert run.returncode == 0, run.stdout[-3000:]
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout.splitlines()[-1]


# What is written


@pytest.mark.parametrize("family", PROMISES)
def test_a_new_folder_holds_our_files_and_three_short_ones_to_change(family):
    folder = folder_of(family)
    ours = package_code(f"tformer_{family}")
    own_files = {"__init__.py", "README.md"}
    own_files |= {f"{kind}_own.py" for kind in ("configuration", "modeling", "test")}
    assert {path.name for path in folder.iterdir() if path.is_file()} == {*ours, *own_files}
    assert all((folder / name).read_bytes() == path.read_bytes() for name, path in ours.items())
    for name in own_files:
        text = (folder / name).read_text()
        assert "mine" not in text.lower()
        if name.endswith(".py"):
            ast.parse(text)
    assert len((folder / "modeling_own.py").read_text().splitlines()) <= LENGTHS[family]
    assert len((folder / "configuration_own.py").read_text().splitlines()) <= 40


@pytest.mark.parametrize("family", PROMISES)
def test_a_new_model_starts_as_the_family_does_and_with_its_own_field(family):
    config_class = package_of(family).OwnConfig
    sizes = {"hidden_size": 60, "intermediate_size": 44, "vocab_size": 101}
    sizes |= {"num_attention_heads": 6, "num_key_value_heads": 3}
    config = config_class(**sizes, first_temperature=0.7)
    model = head_of(family)(config)
    layer = model.get_decoder().layers[0]
    assert layer.self_attn.temperature.tolist() == pytest.approx([0.7] * 6)
    plain = getattr(hf_tformer, type(model).__mro__[2].__name__)
    theirs = plain(plain.config_class(**sizes))
    expected = theirs.get_decoder().layers[0].self_attn.q_proj.weight.std()
    torch.testing.assert_close(layer.self_attn.q_proj.weight.std(), expected, rtol=0.1, atol=0)
    assert model._tp_plan == theirs._tp_plan


@pytest.mark.parametrize(
    ("name", "model_type"),
    [("MyModel", "my_model"), ("MyGPT2", "my_gpt2"), ("GPTMine", "gpt_mine"), ("X", "x")],
)
def test_a_name_in_capitals_becomes_a_model_type_in_words(name, model_type, tmp_path):
    write_new(tmp_path / "somebody", "decoder", name)
    text = (tmp_path / "somebody" / f"configuration_{model_type}.py").read_text()
    assert f'model_type = "{model_type}"' in text
    assert f"class {name}Config(TformerDecoderConfig):" in text
    ast.parse((tmp_path / "somebody" / f"modeling_{model_type}.py").read_text())


REFUSED = {
    "no name for a class": ("fine", "my-model", "name is 'my-model'"),
    "a small letter": ("fine", "mine", "name is 'mine'"),
    "a word of Python": ("fine", "None", "name is 'None'"),
    "a model of transformers": ("fine", "Llama", "transformers opens 'llama'"),
    "a model of this package": ("fine", "TformerDecoder", "transformers opens 'tformer_decoder'"),
    "a file of ours": ("fine", "Decoder", "our configuration_decoder.py"),
    "another file of ours": ("fine", "Base", "our configuration_base.py"),
    "a class of ours": ("fine", "Self", "SelfAttention is a class of ours"),
    "no name for a package": ("my-model", "Own", "'my-model' is no name that Python can import"),
    "a name of Python's own": ("__main__", "Own", "'__main__' is no name that Python can import"),
    "a word that Python keeps": ("class", "Own", "'class' is no name that Python can import"),
    "a module of Python": ("json", "Own", "'json' is the name of a module"),
    "a module that is installed": ("transformers", "Own", "is the name of a module"),
    "no place": ("gone/fine", "Own", "gone is no folder"),
    "a place that is taken": ("taken", "Own", "taken exists"),
    "a file": ("file", "Own", "file exists"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_cannot_be_begun_is_refused_in_one_sentence_and_nothing_is_written(
    how, tmp_path, capsys
):
    place, name, words = REFUSED[how]
    (tmp_path / "taken").mkdir()
    for file in ("taken/notes.txt", "file"):
        (tmp_path / file).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    assert main(["new", str(tmp_path / place), "--family", "decoder", "--name", name]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert words in error
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unknown_family_is_answered_with_a_known_one(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["new", str(tmp_path / "a"), "--family", "decodr", "--name", "Own"])
    assert capsys.readouterr().err.endswith("did you mean decoder?\n")
    with pytest.raises(NewError, match="family is 'llama': choose one of decoder"):
        write_new(tmp_path / "a", "llama", "Own")


def test_an_empty_folder_is_filled_and_a_failure_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(writing, "readme", lambda *_: "\ud800")  # no text that can be written
        with pytest.raises(UnicodeEncodeError):
            write_new(tmp_path / "empty", "encoder", "Own")
        full = OSError(28, "No space left on device")
        patched.setattr(writing.shutil, "copyfile", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(NewError, match=r"could not be written .No space left"):
            write_new(tmp_path / "empty", "encoder", "Own")
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
    write_new(tmp_path / "empty", "encoder", "Own")
    assert (tmp_path / "empty" / "modeling_own.py").exists()


# What becomes of it


@pytest.mark.parametrize("family", PROMISES)
def test_a_layer_of_ones_own_is_called_beside_our_fast_paths(family, monkeypatch):
    """The same classes on top of the installed ones, whose methods are replaced."""
    text = (folder_of(family) / "modeling_own.py").read_text()
    code = text.replace("from .", "from hf_tformer.model.")
    code = code.replace("hf_tformer.model.configuration_own", f"own_{family}.configuration_own")
    scope = {"__name__": f"own_{family}_on_installed"}
    monkeypatch.setitem(sys.modules, scope["__name__"], type(sys)(scope["__name__"]))
    package_of(family)
    exec(compile(code, "modeling_own.py", "exec"), scope)
    asked = family_of(family)
    head = scope[head_of(family).__name__]
    model = asked.build(None, model_class=head)
    with torch.no_grad():
        ours = asked.logits(model, ROWS)
        with fast.disabled():
            plain = asked.logits(model, ROWS)
        for parameter in (p for n, p in model.named_parameters() if "temperature" in n):
            parameter.mul_(2)
        changed = asked.logits(model, ROWS)
    torch.testing.assert_close(ours, plain)
    assert not any(map(torch.allclose, ours, changed))


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with HubServer() as server:
        online(monkeypatch, server, tmp_path / "home")
        yield server


OPENED = """
import sys; sys.modules["hf_tformer"] = None
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("user/own", trust_remote_code=True).eval()
print(type(model).__name__, model(torch.tensor([[3, 4, 5]])).logits.sum().item())
"""


def test_a_new_kind_of_model_is_published_with_a_card_and_opened_elsewhere(hub, tmp_path, capsys):
    model = build("decoder")
    model.save_pretrained(tmp_path / "trained")
    assert main(["publish", str(tmp_path / "trained"), "user/own"]) == 0
    assert "loaded back" in capsys.readouterr().out
    run = subprocess.run(
        [sys.executable, "-c", OPENED],
        capture_output=True,
        text=True,
        env=environment(hub, tmp_path / "home of a reader", token=None),
    )
    expected = model(torch.tensor([[3, 4, 5]])).logits.sum().item()
    name, found = run.stdout.split()
    assert (name, float(found)) == ("OwnForCausalLM", pytest.approx(expected, rel=1e-4))
    from huggingface_hub import ModelCard

    card = ModelCard.load("user/own", token=TOKEN)
    assert card.data.pipeline_tag == "text-generation"
    assert "A model of its own kind, own, of" in card.text
    assert "AutoModelForCausalLM.from_pretrained" in card.text
    assert "import hf_tformer" not in card.text  # which does not know this kind


def test_publish_refuses_a_model_that_has_nothing_of_ours(tmp_path, capsys):
    build("decoder").save_pretrained(tmp_path)
    for path in tmp_path.glob("*.py"):
        path.write_text(path.read_text().replace("# Copyright", "# Written"))
    assert main(["publish", str(tmp_path), "user/own", "--dry-run"]) == 1
    assert "models that are built on their code" in capsys.readouterr().err
    assert main(["refresh", str(tmp_path)]) == 2
    assert "models that are built on their code" in capsys.readouterr().err


@pytest.fixture
def old(tmp_path):
    """A trained model, whose files of ours are of an earlier day."""
    folder = tmp_path / "trained"
    build("decoder").save_pretrained(folder)
    for name in ("layers.py", "configuration_decoder.py"):
        (folder / name).write_text((folder / name).read_text() + "\n# of an earlier day\n")
    return folder


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_refresh_renews_our_files_and_leaves_those_of_the_user(old, capsys):
    before = content(old)
    findings = {finding.name: finding for finding in hf_tformer.check(old, run=False)}
    assert findings["code"].verdict == "warn"
    assert "configuration_decoder.py, layers.py differ" in findings["code"].detail
    assert main(["refresh", str(old)]) == 0
    out = capsys.readouterr().out
    assert "left as they are, not ours: configuration_own.py, modeling_own.py" in out
    assert "answers are equal: AutoModel, AutoModelForCausalLM" in out
    ours = {name: path.read_bytes() for name, path in package_code("tformer_decoder").items()}
    assert content(old) == before | ours
    findings = {finding.name: finding for finding in hf_tformer.check(old, run=False)}
    assert findings["code"].verdict == "ok"
    assert "a model of its own, built on hf_tformer" in findings["code"].detail
    assert main(["refresh", str(old)]) == 0
    assert "is current" in capsys.readouterr().out


@pytest.mark.slow
def test_refresh_refuses_where_the_users_layer_needs_the_older_files(old, monkeypatch):
    """Here it reads a name that today's files do not have."""
    text = (old / "layers.py").read_text()
    (old / "layers.py").write_text(f"{text}\nOLDER = 1.0\n")
    own_file = old / "modeling_own.py"
    own_file.write_text(f"from .layers import OLDER\n{own_file.read_text()}")
    before = content(old)
    with pytest.raises(RefreshError, match="AutoModel does not open"):
        hf_tformer.refresh(old)
    assert content(old) == before


@pytest.mark.parametrize("stop", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_an_interrupted_refresh_leaves_a_model_that_opens_and_is_finished_later(
    old, stop, monkeypatch, tmp_path
):
    monkeypatch.setattr(renewal, "compare_with_package", lambda *_: Comparison([], None))
    ids, done = torch.tensor([[3, 4, 5]]), []
    expected = AutoModelForCausalLM.from_pretrained(old, trust_remote_code=True)(ids).logits
    replace = Path.replace

    def replace_until(path, target):
        if len(done) == stop:
            raise OSError(5, "Input/output error")
        done.append(path)
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace_until)
        with pytest.raises(RefreshError, match="refresh again to finish"):
            hf_tformer.refresh(old)
    assert replacing.INSIDE in (old / "config.json").read_text()
    again = shutil.copytree(old, tmp_path / f"stopped_{stop}")
    found = AutoModelForCausalLM.from_pretrained(again, trust_remote_code=True)(ids).logits
    assert torch.equal(found, expected)
    hf_tformer.refresh(old)
    auto_map = json.loads((old / "config.json").read_text())["auto_map"]
    assert auto_map["AutoModelForCausalLM"] == "modeling_own.OwnForCausalLM"
    assert not [path for path in old.iterdir() if path.is_dir()]


def test_importing_the_package_loads_no_test_framework():
    code = "import sys, hf_tformer, hf_tformer.new; print('pytest' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "False\n", run.stderr


def test_a_saved_folder_travels_without_its_test_and_its_package(tmp_path):
    """What stays at home: __init__.py, the test, README.md."""
    build("decoder").save_pretrained(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").glob("*.py")}
    assert names == {*package_code("tformer_decoder"), "configuration_own.py", "modeling_own.py"}
