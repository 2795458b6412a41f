"""Two versions of a model's code, opened in one process: each folder answers with its own."""

import json
import shutil
import subprocess
import sys

import pytest

from hf_tformer import publish
from support.families import DECODERS, decoder_first
from support.hub_server import TOKEN, HubServer, environment, online

pytestmark = pytest.mark.usefixtures("warm_python")

# Behind the last line of a modeling file: what a later version might compute.
NEGATED = """

def negated(forward):
    @functools.wraps(forward)
    def negated_forward(*args, **kwargs):
        output = forward(*args, **kwargs)
        output.logits = -output.logits
        return output

    return negated_forward


{name}.forward = negated({name}.forward)
"""

# The reader's whole program. The second of a pair has the code that negates. Every pair has a name
# of its own, so that none finds what another left in this process.
READER = """
import json, sys
sys.modules["hf_tformer"] = None
import torch, transformers

def from_config(place, **options):
    config = transformers.AutoConfig.from_pretrained(place, **options)
    torch.manual_seed(0)
    return auto.from_config(config, trust_remote_code=True)

def in_a_pipeline(place, **options):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words)
    pipe = transformers.pipeline("text-generation", place, tokenizer=tokenizer, **options)
    return pipe.model

from tokenizers import Tokenizer, models
words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
auto = getattr(transformers, sys.argv[1])
ids = torch.tensor([[3, 4, 5]])
inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if "Seq2Seq" in sys.argv[1] else {})
ways = {"auto": auto.from_pretrained, "config": from_config, "pipeline": in_a_pipeline}
for name, way, pair in json.loads(sys.argv[2]):
    found = [
        ways[way](place, revision=revision, trust_remote_code=True).eval()(**inputs).logits
        for place, revision in pair
    ]
    if not torch.equal(found[0], -found[1]):
        print(f"{name}: the second answers with the code of the first")
print("read")
"""


def write_versions(family, tmp_path):
    """Two folders that differ in their modeling file alone."""
    first, second = tmp_path / "first", tmp_path / "second"
    family.build().save_pretrained(first)
    shutil.copytree(first, second)
    path = second / f"modeling_{family.name}.py"
    code = path.read_text(encoding="utf-8").replace("from torch", "import functools\nfrom torch", 1)
    path.write_text(code + NEGATED.format(name=family.model_class.__name__), encoding="utf-8")
    return first, second


@decoder_first
def test_each_folder_answers_with_its_own_code(family, tmp_path, monkeypatch):
    """One name, as the checkpoints of two runs have, and one configuration file."""
    versions = write_versions(family, tmp_path)
    cases = []
    for way in ("auto", "config", "pipeline") if family in DECODERS else ("auto", "config"):
        for order in (versions, versions[::-1]):
            name = f"{way}-{order[0].name}"
            places = [tmp_path / "copies" / version.name / name for version in order]
            for version, place in zip(order, places, strict=True):
                shutil.copytree(version, place)
            cases.append((name, way, [(str(place), "main") for place in places]))
    with HubServer() as hub:
        online(monkeypatch, hub, tmp_path / "home")
        for order in (versions, versions[::-1]):
            name = f"user/{order[0].name}"
            commits = [publish(v, name, token=TOKEN, verify=False).commit for v in order]
            cases.append((name, "auto", [(name, commit) for commit in commits]))
        auto = family.auto.__name__
        run = subprocess.run(
            [sys.executable, "-c", READER, auto, json.dumps(cases)],
            capture_output=True,
            text=True,
            env=environment(hub, tmp_path / "reader", token=None),
            cwd=tmp_path,
        )
    assert run.stdout == "read\n", run.stdout + run.stderr[-3000:]


def test_a_configuration_saved_alone_brings_all_the_code_that_its_auto_map_names(family, tmp_path):
    family.config().save_pretrained(tmp_path)
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    named = {reference.split(".")[0] for reference in auto_map.values()}
    assert named <= {path.stem for path in tmp_path.glob("*.py")}
