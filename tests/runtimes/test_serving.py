"""Servers and tools that mix weights take our folders, or an export of them."""

import json
import sys

import pytest
import torch

from conversion import export_checkpoint
from support.elsewhere import (
    DECODER,
    ENCODER,
    SEQ2SEQ,
    command,
    free_port,
    run,
    serving,
    trained_tokenizer,
    write,
    write_pair,
)

pytestmark = pytest.mark.runtime

PROMPT, NEW = "the cat sat on", 12
MESSAGES = [{"role": "user", "content": PROMPT}]


@pytest.fixture
def client(tmp_path):
    """A client of `transformers serve`, which runs in the folder of the test."""
    openai = pytest.importorskip("openai", reason="openai is not installed")
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    port = free_port()
    line = f"transformers serve --port {port} --device cpu --dtype float32 --trust-remote-code"
    with serving([line.split()], port, tmp_path):
        yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")


@torch.no_grad()
def test_transformers_serve_answers_as_generate_does(client, tmp_path):
    openai = sys.modules["openai"]
    model = write(tmp_path / "ours", DECODER)
    export_checkpoint(tmp_path / "ours", tmp_path / "llama", to="llama")
    tokenizer = trained_tokenizer()
    chat = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)

    def written(text):
        ids = tokenizer(text, return_tensors="pt").input_ids
        row = model.generate(ids, max_new_tokens=NEW, do_sample=False)[0, ids.shape[1] :]
        return tokenizer.decode(row, skip_special_tokens=True)

    asked = {"model": str(tmp_path / "llama"), "max_tokens": NEW, "temperature": 0}
    answer = client.chat.completions.create(messages=MESSAGES, **asked)
    assert answer.choices[0].message.content == written(chat) != ""
    parts = client.chat.completions.create(messages=MESSAGES, stream=True, **asked)
    streamed = [part.choices[0].delta.content or "" for part in parts if part.choices]
    assert "".join(streamed) == written(chat)
    assert client.completions.create(prompt=PROMPT, **asked).choices[0].text == written(PROMPT)
    # Theirs: it looks every class up in transformers itself, whatever it is told to trust.
    with pytest.raises(openai.InternalServerError):
        client.completions.create(prompt=PROMPT, **{**asked, "model": str(tmp_path / "ours")})
    assert (
        "transformers has no attribute TformerDecoderForCausalLM" in (tmp_path / "log").read_text()
    )


MERGE = {
    "models": [
        {"model": "./one", "parameters": {"weight": 0.25}},
        {"model": "./one-2", "parameters": {"weight": 0.75}},
    ],
    "merge_method": "linear",
    "dtype": "float32",
}
OPEN = """
import sys
sys.modules["hf_tformer"] = None
import torch, transformers
model = getattr(transformers, sys.argv[1]).from_pretrained("merged", trust_remote_code=True)
torch.save(model.state_dict(), "merged.pt")
"""


@pytest.mark.parametrize("family", [DECODER, SEQ2SEQ, ENCODER], ids=lambda family: family.name)
def test_mergekit_mixes_two_models_into_a_folder_that_opens_anywhere(family, tmp_path):
    pytest.importorskip("mergekit", reason="mergekit is not installed")
    first, second = write_pair(tmp_path / "one", family)
    (tmp_path / "merge.yml").write_text(json.dumps(MERGE))  # which is YAML, too
    run(command(["mergekit-yaml", "merge.yml", "merged", "--trust-remote-code"]), tmp_path)
    run([sys.executable, "-c", OPEN, family.auto.__name__], tmp_path)
    merged = torch.load(tmp_path / "merged.pt")
    others = second.state_dict()
    for name, weight in first.state_dict().items():
        torch.testing.assert_close(merged[name], 0.25 * weight + 0.75 * others[name])
