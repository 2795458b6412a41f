"""From a text to other runtimes, offline: the language model that examples/train_language_model.py
trains, with the tokenizer that it trains, writes in each of them what it writes here.
"""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from support.elsewhere import TEXTS
from support.paths import ROOT

pytestmark = pytest.mark.runtime


PROMPT = "the cat sat"
NEW = 16
# What each needs, and a program that has neither this package nor its code.
WRITERS = {
    "gguf": (
        "cyllama",
        """
from cyllama import LLM

text = str(LLM("out/model.gguf", max_tokens=NEW, temperature=0.0)(PROMPT))
""",
    ),
    "onnx": (
        "onnxruntime_genai",
        """
import onnxruntime_genai as genai

model = genai.Model("out")
tokenizer = genai.Tokenizer(model)
options = genai.GeneratorParams(model)
ids = tokenizer.encode(PROMPT)
options.set_search_options(max_length=len(ids) + NEW)
generator = genai.Generator(model, options)
generator.append_tokens(ids)
while not generator.is_done():
    generator.generate_next_token()
text = tokenizer.decode(generator.get_sequence(0)[len(ids):])
""",
    ),
    "openvino": (
        "openvino_genai",
        """
import openvino_genai

pipeline = openvino_genai.LLMPipeline("out", "CPU", INFERENCE_PRECISION_HINT="f32")
text = pipeline.generate(
    PROMPT, max_new_tokens=NEW, do_sample=False, apply_chat_template=False
)
""",
    ),
}
AROUND = """
import json, sys

sys.modules["hf_tformer"] = sys.modules["conversion"] = None
PROMPT, NEW = json.loads(sys.argv[1])
{}
print(json.dumps(text))
"""


def run(*command, cwd):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the trained model in `lm`."""
    place = tmp_path_factory.mktemp("trained")
    # Learnt in a minute: bytes that are no text are shown by each tool in its own way.
    (place / "text.txt").write_text("\n".join(TEXTS * 300), encoding="utf-8")
    sizes = "--hidden_size 48 --num_hidden_layers 2 --num_attention_heads 3 --block_size 32"
    flags = f"--text text.txt --output lm --vocab_size 300 --max_steps 120 {sizes}"
    run(str(ROOT / "examples" / "train_language_model.py"), *flags.split(), cwd=place)
    return place


def written_here(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    done = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW
    )
    return tokenizer.decode(done[0, ids.shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("runtime", WRITERS)
def test_a_model_trained_here_writes_the_same_elsewhere(place, runtime):
    package, program = WRITERS[runtime]
    pytest.importorskip(package)
    run("-m", "hf_tformer", "convert", "export", "lm", f"{runtime}/out", "--to", runtime, cwd=place)
    asked = json.dumps([PROMPT, NEW])
    told = run("-c", AROUND.format(program), asked, cwd=place / runtime)
    text = json.loads(told.splitlines()[-1])
    expected = written_here(place / "lm")
    assert len(expected.split()) > 2
    assert text == expected
