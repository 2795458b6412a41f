"""What chapters state in names and in tables is true; test_book.py runs their programs."""

import re

import pytest
import torch
from book import DOCS, LANGUAGES, SYSTEMS, chapters, steps

from conversion.engine.registry import FORMATS
from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM
from hf_tformer.plan.layouts import StagedLayout
from hf_tformer.plan.memory import Recipe
from hf_tformer.plan.traffic import PASSES, step_traffic

# The names of chapter 23's first program, and the formats of conversion that they stand for.
NAMED = {"pythia": "gpt_neox"} | {
    name: name for name in ("gpt2", "bloom", "mistral", "qwen3", "gemma2", "t5", "marian")
}
# Fields that differ between the releases of an architecture, or matter in training alone.
SIZES = {"vocab_size", "hidden_size", "intermediate_size", "head_dim", "max_position_embeddings"}
SIZES |= {"num_hidden_layers", "encoder_layers", "decoder_layers", "sliding_window", "initializer"}
SIZES |= {"num_attention_heads", "num_key_value_heads", "rope_parameters", "tie_word_embeddings"}
SIZES |= {"layer_types", "attention_scale", "logit_scale", "dropout", "attention_dropout"}
SIZES |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"}
OF_RELEASES = {"hidden_act": "swish", "scale_embedding": True}  # Marian's, not its class's defaults


@pytest.fixture(scope="module")
def named():
    names = {}
    exec(steps(DOCS / "en" / "23-your-own-model.md")[0].code, names)
    return {name: names[name] for name in NAMED}


@pytest.mark.parametrize("name", NAMED)
def test_a_configuration_of_chapter_23_is_the_architecture_that_it_is_called(name, named):
    conversion, ours = FORMATS[NAMED[name]], named[name]
    conversion.config_to_theirs(ours)  # refuses what their model does not compute
    traits = conversion.config_to_ours(conversion.theirs.config_class())
    traits |= OF_RELEASES if name == "marian" else {}
    wanted = {field: traits[field] for field in traits.keys() - SIZES}
    assert {field: getattr(ours, field) for field in wanted} == wanted
    kinds = getattr(ours, "layer_types", None), traits.get("layer_types")
    ours_mixes, theirs_mixes = (len(set(each or ())) > 1 for each in kinds)
    assert ours_mixes == theirs_mixes, "layers with a window alternate with others"


PAPER = re.compile(r"\]\((https://arxiv\.org/abs/\d{4}\.\d{4,5})\)")
THREAD = re.compile(
    r"\[([\w./-]+) #(\d+)\]\(https://github\.com/([\w./-]+)/(?:issues|pull)/(\d+)\)"
)


def sources(language):
    """Return the papers and the threads of each chapter, by its page."""
    text = (DOCS / language / "sources.md").read_text(encoding="utf-8")
    rows = {re.search(r"\((\d\d-[\w-]+\.md)\)", line)[1]: line for line in text.splitlines()[6:]}
    return {page: (PAPER.findall(row), THREAD.findall(row)) for page, row in rows.items()}


def test_each_system_has_its_papers_and_both_languages_have_the_same_sources():
    english, chinese = map(sources, LANGUAGES)
    assert english == chinese
    systems = [page.name for page in chapters("en") if page.name[:2].isdigit()][: SYSTEMS + 1]
    assert [page for page in english if english[page][0]][: SYSTEMS + 1] == systems
    threads = [thread for _, found in english.values() for thread in found]
    assert len(threads) > 40
    assert all((name, number) == (place, at) for name, number, place, at in threads)


@pytest.mark.parametrize("page", chapters("en"), ids=lambda page: page.stem)
def test_an_error_that_was_found_in_public_links_to_where(page):
    _, threads = sources("en").get(page.name, ([], []))
    for language in LANGUAGES:
        text = (DOCS / language / page.name).read_text(encoding="utf-8")
        assert ("](sources.md)" in text) == bool(threads) or page.name == "index.md"


HIDDEN, TOKENS = 64, 128


def sent_for_a_layer(layout, precision):
    """Return the bytes that a layer of a decoder adds to a step; p and a are one layer's, too."""
    totals, numbers = [], []
    for layers in (2, 3):
        config = TformerDecoderConfig(
            vocab_size=101, hidden_size=HIDDEN, intermediate_size=128, num_hidden_layers=layers
        )
        with torch.device("meta"):
            model = TformerDecoderForCausalLM(config)
        found = step_traffic(model, layout, Recipe(TOKENS, precision=precision))
        totals.append(sum(PASSES.get(one.kind, 1) * one.bytes for one in found))
        numbers.append(model.num_parameters())
    return totals[1] - totals[0], 4 * (numbers[1] - numbers[0])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_layouts_of_chapter_27_send_what_its_table_says(language):
    page = (DOCS / language / "27-scale.md").read_text(encoding="utf-8")
    found = re.findall(r"^\|[^|]*(DDP|FSDP2|parallel|张量并行)[^|]*\|[^|]*\|([^|]*)\|", page, re.M)
    said = {name: [int(n) for n in re.findall(r"\$(\d+)[ap]\$", sent)] for name, sent in found[:3]}
    copies, p = sent_for_a_layer(StagedLayout(8, 1, 1), "float32")
    shards, _ = sent_for_a_layer(StagedLayout(1, 8, 1), "float32")
    halves, _ = sent_for_a_layer(StagedLayout(1, 8, 1), "mixed")
    parts, _ = sent_for_a_layer(StagedLayout(1, 1, 8), "float32")
    a = 4 * TOKENS * HIDDEN
    assert list(said.values()) == [[copies / p], [shards / p, halves / p], [parts / a]]
