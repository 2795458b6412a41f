"""Servers answer the OpenAI client with what the model itself computes: one request at a time, and
64 at once.

vLLM serves the folder with the code it brings, `transformers serve` its export to Llama.
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import hf_tformer
from conversion import export_checkpoint
from support.elsewhere import (
    DECODER,
    ENCODER,
    SEQ2SEQ,
    TEXTS,
    command,
    found_as_vllm,
    free_port,
    serving,
    surroundings,
    trained_tokenizer,
    write,
)

pytestmark = pytest.mark.engine
openai = pytest.importorskip("openai", reason="openai is not installed")
psutil = pytest.importorskip("psutil", reason="psutil is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

LONGEST, NEW, END = 128, 16, 2
VLLM = f"--trust-remote-code --dtype float32 --enforce-eager --max-model-len {LONGEST}"
TRANSFORMERS = "transformers serve --device cpu --dtype float32"
ROOM = "--cb-num-blocks 128 --cb-max-batch-tokens 256"  # by itself it takes most of the memory
SERVERS = {
    "vllm": f"vllm serve my-model {VLLM}",
    "vllm, two processes": f"vllm serve my-model {VLLM} --tensor-parallel-size 2",
    "transformers": TRANSFORMERS,
    "transformers, batched": f"{TRANSFORMERS} --continuous-batching {ROOM}",
}
# The least head that vLLM's kernels take, and heads for two processes.
SIZES = {"head_dim": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
WORDS = " ".join(TEXTS).split()
PROMPTS = [" ".join((WORDS * 2)[i % 7 : i % 7 + 1 + i % 40]) for i in range(64)]
MESSAGES = [{"role": "user", "content": "the cat sat on"}]


@contextmanager
def client_of(line, place):
    """The OpenAI client of a server that ends, with all its processes, when it is told to."""
    if find_spec(line.split()[0]) is None:
        pytest.skip(f"{line.split()[0]} is not installed")
    port = free_port()
    with serving([[*line.split(), "--port", str(port)]], port, place) as (process,):
        url = f"http://127.0.0.1:{port}/v1"
        yield openai.OpenAI(base_url=url, api_key="none", timeout=300)
        started = psutil.Process(process.pid).children(recursive=True)
    assert process.returncode is not None
    _, left = psutil.wait_procs(started, timeout=30)
    assert not left, "the server has ended, and processes of it have not"


@dataclass
class Server:
    name: str
    model: torch.nn.Module
    tokenizer: object
    client: object
    place: Path

    def ask(self, prompt, **how):
        return self.client.completions.create(**self.request(prompt=prompt, **how))

    def chat(self, **how):
        return self.client.chat.completions.create(**self.request(messages=MESSAGES) | how)

    def request(self, **how):
        return {"model": self.served, "max_tokens": NEW, "temperature": 0, **how}

    @property
    def is_vllm(self):
        return self.name.startswith("vllm")

    @property
    def served(self):
        return "my-model" if self.is_vllm else str(self.place / "my-llama")

    @torch.no_grad()
    def tokens(self, prompt, new=NEW):
        """What generate() writes after a prompt alone."""
        ids = self.tokenizer(prompt, return_tensors="pt").input_ids
        written = self.model.generate(ids, max_new_tokens=new, do_sample=False)
        return written[0, ids.shape[1] :].tolist()

    def text(self, prompt, new=NEW):
        return self.tokenizer.decode(self.tokens(prompt, new), skip_special_tokens=True)


@pytest.fixture(scope="module", params=SERVERS)
def server(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("server")
    model = write(place / "my-model", DECODER, **SIZES)
    export_checkpoint(place / "my-model", place / "my-llama", to="llama")
    with client_of(SERVERS[request.param], place) as client:
        yield Server(request.param, model, trained_tokenizer(), client, place)


only_vllm = pytest.mark.parametrize("server", ["vllm"], indirect=True)


def test_chat_and_completions_are_the_texts_of_generate(server):
    chat = server.tokenizer.apply_chat_template(
        MESSAGES, add_generation_prompt=True, tokenize=False
    )
    for prompt, answer, part_of in (
        (chat, server.chat, lambda choice: choice.delta.content),
        (PROMPTS[5], lambda **how: server.ask(PROMPTS[5], **how), lambda choice: choice.text),
    ):
        (choice,) = answer().choices
        text = choice.message.content if answer == server.chat else choice.text
        parts = [part_of(part.choices[0]) for part in answer(stream=True) if part.choices]
        assert text == "".join(part or "" for part in parts) == server.text(prompt) != ""


def test_64_requests_at_once_get_what_each_gets_alone(server):
    wanted = [1 + i % NEW for i in range(64)]
    with ThreadPoolExecutor(64) as clients:
        ask = lambda prompt, new: server.ask(prompt, max_tokens=new)  # noqa: E731
        answers = list(clients.map(ask, PROMPTS, wanted))
    for prompt, new, answer in zip(PROMPTS, wanted, answers, strict=True):
        expected = server.tokens(prompt, new)
        assert answer.choices[0].text == server.text(prompt, new)
        assert answer.usage.completion_tokens == len(expected)
        assert answer.choices[0].finish_reason == ("stop" if END in expected else "length")


def test_a_wrong_request_is_refused_and_the_next_one_is_answered(server):
    for wrong in ({"model": "another"}, {"max_tokens": "many"}, {"messages": "no list"}):
        with pytest.raises(openai.APIStatusError):
            server.chat(**wrong)
    if server.is_vllm:
        with pytest.raises(openai.BadRequestError, match=f"{LONGEST}"):
            server.ask(" ".join(PROMPTS))
    assert server.ask(PROMPTS[5]).choices[0].text == server.text(PROMPTS[5])


@only_vllm
def test_its_tokens_and_their_likelihoods_are_the_models(server):
    (choice,) = server.ask(PROMPTS[9], logprobs=1, extra_body={"return_token_ids": True}).choices
    expected = server.tokens(PROMPTS[9])
    assert choice.token_ids == expected
    prompt = server.tokenizer(PROMPTS[9]).input_ids
    with torch.no_grad():
        logits = server.model(torch.tensor([prompt + expected])).logits[0, len(prompt) - 1 : -1]
    likelihoods = logits.log_softmax(-1)[range(len(expected)), expected]
    assert sum(choice.logprobs.token_logprobs) == pytest.approx(likelihoods.sum().item(), abs=1e-3)


@only_vllm
def test_a_stop_ends_a_text_and_a_seed_decides_one(server):
    text = server.text(PROMPTS[5])
    stop = text[len(text) // 2 :][:2]
    (choice,) = server.ask(PROMPTS[5], stop=[stop]).choices
    assert (choice.text, choice.finish_reason) == (text[: text.index(stop)], "stop")
    texts = [server.ask(PROMPTS[5], temperature=1, seed=s).choices[0].text for s in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


# Encoders, in vLLM alone


@torch.no_grad()
def test_an_encoder_gives_the_vectors_of_many_texts(tmp_path):
    model = write(tmp_path / "my-encoder", ENCODER, head_dim=32).model
    tokenizer = trained_tokenizer()
    pooling = '--runner pooling --pooler-config {"pooling_type":"MEAN"}'
    with client_of(f"vllm serve my-encoder {VLLM} {pooling}", tmp_path) as client:
        answers = client.embeddings.create(model="my-encoder", input=PROMPTS)
    for text, answer in zip(PROMPTS, answers.data, strict=True):
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        expected = torch.nn.functional.normalize(states.mean(0), dim=0)
        torch.testing.assert_close(torch.tensor(answer.embedding), expected, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_an_encoder_scores_pairs_of_texts(tmp_path):
    head = hf_tformer.TformerEncoderForSequenceClassification
    model = write(tmp_path / "my-judge", ENCODER, model_class=head, num_labels=1, head_dim=32)
    tokenizer, question = trained_tokenizer(), PROMPTS[3]
    with client_of(f"vllm serve my-judge {VLLM} --runner pooling", tmp_path) as client:
        asked = {"model": "my-judge", "text_1": question, "text_2": PROMPTS}
        url = str(client.base_url).replace("/v1/", "/score")
        answers = client.post(url, body=asked, cast_to=object)["data"]
    for text, answer in zip(PROMPTS, answers, strict=True):
        logits = model(**tokenizer(question, text, return_tensors="pt")).logits
        assert answer["score"] == pytest.approx(logits.sigmoid().item(), abs=1e-4)


def test_an_encoder_decoder_is_refused_with_what_to_do(tmp_path):
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    write(tmp_path / "my-translator", SEQ2SEQ, head_dim=32)
    run = subprocess.run(
        command(f"vllm serve my-translator {VLLM} --port {free_port()}".split()),
        cwd=tmp_path,
        env=surroundings(tmp_path, **found_as_vllm(tmp_path)),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode != 0
    assert "vllm serves no encoder-decoder" in run.stdout + run.stderr
