"""docs/USE_ELSEWHERE.md is true: the blocks of a section run in turn where its tool is installed.

The verbs test-runtimes, test-engines and test-study have different tools; each skips the rest.
"""

import re
import shlex
import sys
from importlib.util import find_spec

import pytest

from support.elsewhere import DECODER, ENCODER, SEQ2SEQ, command, free_port, run, serving, write
from support.pages import without_words
from support.paths import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.runtime, pytest.mark.study]


PAGES = ("docs/USE_ELSEWHERE.md", "docs/USE_ELSEWHERE.zh-CN.md")
PART = re.compile(r"^(?:### (?P<title>.+?)\n|```(?P<kind>\w*)\n(?P<code>.*?)^```)", re.M | re.S)
# What a section imports, and on what model it runs where ours needs other sizes.
NEEDS = {
    "lm-evaluation-harness": ("lm_eval",),
    "sentence-transformers": ("sentence_transformers",),
    "Pipelines of transformers": ("transformers",),
    "vLLM": ("vllm", "openai", "uvicorn"),
    "mergekit": ("mergekit",),
    "transformers serve": ("openai", "uvicorn"),
    "ONNX Runtime": ("onnxruntime", "onnxscript"),
    "OpenVINO": ("openvino", "openvino_tokenizers"),
    "ExecuTorch": ("executorch",),
    "llama.cpp and Ollama": ("cyllama", "gguf"),
    "CTranslate2": ("ctranslate2",),
    "bertviz": ("bertviz",),
    "captum": ("captum",),
    "inseq": ("inseq",),
    "nnsight and nnterp": ("nnsight", "nnterp"),
    "TransformerLens": ("transformer_lens",),
}
SIZES = {
    "vLLM": {"head_dim": 32},
    "llama.cpp and Ollama": {"all_bytes": True},  # or its tokenizer makes other ids of other texts
    "CTranslate2": {"head_dim": None, "num_key_value_heads": None},
}
SETTINGS = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"}
FOLDERS = {"my-model": DECODER, "my-other-model": DECODER}
FOLDERS |= {"my-translator": SEQ2SEQ, "my-encoder": ENCODER}


def sections(page):
    """Heading → its blocks, as (kind, code)."""
    found, title = {}, None
    for match in PART.finditer((ROOT / page).read_text(encoding="utf-8")):
        title = match["title"] or title
        if match["code"] is not None:
            found.setdefault(title, []).append((match["kind"], match["code"]))
    return found


def run_block(kind, code, place):
    if kind in ("yaml", "json"):  # a file, named in its first line
        first, content = code.split("\n", 1)
        path = place / re.split(r"\s+", first)[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if kind == "json" else code, encoding="utf-8")
    elif kind == "python":
        (place / "block.py").write_text(code, encoding="utf-8")
        assert run([sys.executable, "block.py"], place, **SETTINGS).strip(), "nothing happens"
    else:
        for line in code.splitlines():
            if not line.endswith("&"):
                run(command(shlex.split(line, comments=True)), place)


@pytest.mark.parametrize("title", NEEDS)
def test_the_lines_of_a_section_run(title, tmp_path):
    missing = [name for name in NEEDS[title] if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    blocks = sections(PAGES[0])[title]
    text = "".join(code for _, code in blocks)
    for name, family in FOLDERS.items():
        if name in text:
            write(tmp_path / name, family, **SIZES.get(title, {}))
    port = str(free_port())
    blocks = [(kind, code.replace("8000", port)) for kind, code in blocks]
    servers = re.findall(r"^(.*) &$", "".join(code for _, code in blocks), re.M)
    with serving([shlex.split(line) for line in servers], port, tmp_path):
        for kind, code in blocks:
            run_block(kind, code, tmp_path)


def test_every_section_with_lines_is_run_and_both_languages_show_the_same():
    english, chinese = map(sections, PAGES)
    assert set(english) == set(NEEDS)
    assert [
        [(kind, without_words(code)) for kind, code in blocks] for blocks in english.values()
    ] == [[(kind, without_words(code)) for kind, code in blocks] for blocks in chinese.values()]


def test_the_table_of_quantisers_is_what_its_tests_hold():
    from support.quantisers import table

    for name in PAGES:
        assert table() in (ROOT / name).read_text(encoding="utf-8")
