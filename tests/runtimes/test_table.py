"""Every runtime beside every family: proven, or refused in a sentence.

`make exports` keeps the rows in docs/EXPORTS.md.
"""

import json
import subprocess
import sys

import pytest

from conversion.runtimes.registry import RUNTIMES
from support.elsewhere import trained_tokenizer
from support.exports_page import Row
from support.families import DECODER, ENCODER, SEQ2SEQ

pytestmark = pytest.mark.runtime

SIZES = {
    "vocab_size": 2003,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 256,
}
CLASSIC = {"position_embedding_type": "learned", "norm_type": "layernorm", "mlp_type": "plain"}
MARIAN = {
    "sinusoidal_layout": "halves",
    "lm_head_bias": True,
    "mlp_type": "plain",
    "hidden_act": "swish",
    "norm_type": "layernorm",
    "norm_position": "post",
    "pad_token_id": 2002,
    "decoder_start_token_id": 2002,
}
BERT = {
    **CLASSIC,
    "sliding_window": None,
    "norm_position": "post",
    "embedding_norm": True,
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
    "head_bias": True,
    "lm_head_bias": True,
    "type_vocab_size": 2,
}
MODELS = {
    "decoder as Llama, 3M": (DECODER, {"num_hidden_layers": 3}),
    "encoder-decoder, 3M": (SEQ2SEQ, {"encoder_layers": 2, "decoder_layers": 2}),
    "encoder-decoder as Marian, 3M": (
        SEQ2SEQ,
        {"encoder_layers": 2, "decoder_layers": 2, **MARIAN},
    ),
    "encoder, 3M": (ENCODER, {"num_hidden_layers": 3}),
    "encoder as BERT, 3M": (ENCODER, {"num_hidden_layers": 3, **BERT}),
}
# What a runtime has no place for; all else is proven in float32.
REFUSED = {"gguf": ("encoder",), "ctranslate2": ("encoder, ", "encoder as")}
# Half a gigabyte of float32, where memory can be seen; measured for the page alone.
LARGE = {
    "vocab_size": 40009,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "num_hidden_layers": 12,
    "tie_word_embeddings": False,
}
# Runs in a process of its own, whose peak of memory is that of the export.
PROGRAM = """
import json, sys, threading, time
from conversion import ConversionError, export_checkpoint
from conversion.runtimes.registry import RUNTIMES
from transformers import AutoModelForCausalLM
import psutil

source, target, name, dtype, weights = sys.argv[1:]
for package in RUNTIMES[name].packages:
    __import__(package)
me = psutil.Process()
finished = threading.Event()


def taken():
    memory = me.memory_info()
    return memory.rss - memory.shared, memory.rss


def watch():
    global most
    while not finished.wait(0.005):
        most = tuple(map(max, most, taken()))


before = most = taken()
watcher = threading.Thread(target=watch)
watcher.start()
try:
    done = export_checkpoint(source, target, to=name, dtype=dtype)
except ConversionError as error:
    print(json.dumps({"refused": str(error)}))
    sys.exit()
finally:
    finished.set()
    watcher.join()
print(json.dumps({
    "difference": done.proof.difference,
    "largest": done.proof.largest,
    "texts": done.proof.equal_texts,
    "size": done.size,
    "seconds": done.seconds,
    "memory": [(x - y) / int(weights) for x, y in zip(most, before)],
}))
"""


def exported(model, folder, runtime, dtype):
    model.save_pretrained(folder / "ours")
    trained_tokenizer(all_bytes=True).save_pretrained(folder / "ours")
    weights = sum(parameter.numel() for parameter in model.parameters()) * 4
    command = [str(folder / "ours"), str(folder / "out"), runtime, dtype, str(weights)]
    run = subprocess.run([sys.executable, "-c", PROGRAM, *command], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


WAYS = [(name, dtype) for name, runtime in RUNTIMES.items() for dtype in runtime.tolerance]


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("name", MODELS)
def test_every_runtime_serves_a_family_or_says_why_not(tmp_path, table, name, way):
    runtime, dtype = way
    for package in RUNTIMES[runtime].packages:
        pytest.importorskip(package)
    family, fields = MODELS[name]
    found = exported(family.build(**{**SIZES, **fields}), tmp_path, runtime, dtype)
    table.append(Row(name, f"--to {runtime} --dtype {dtype}", found))
    served = not name.startswith(REFUSED.get(runtime, ("nothing",)))
    if "refused" in found:
        assert not (tmp_path / "out").exists()
        assert not (served and dtype == "float32"), found["refused"]
    elif dtype == "float32":
        assert served
        assert all(equal == count for equal, count in found["texts"].values())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_half_a_gigabyte_takes_little_more_than_itself(request, tmp_path, table, runtime):
    if not request.config.getoption("--write-exports"):
        pytest.skip("minutes for each: `make exports` measures it")
    model = DECODER.build(**LARGE)
    found = exported(model, tmp_path, runtime, "float32")
    table.append(Row("decoder as Llama, 500 MB", f"--to {runtime} --dtype float32", found))
    assert "refused" not in found
    # Notes of ExecuTorch keep what it has lowered, beside what it then opens.
    assert found["memory"][0] < (2.6 if runtime == "executorch" else 2)
