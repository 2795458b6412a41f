"""The glossary: both languages have the same terms, and its names are those of transformers."""

import inspect
import re
from functools import cache

import pytest
import torch
import transformers
from book import DOCS, LANGUAGES
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

ROW = re.compile(r"^\| (.+) \|$", re.M)
LINK = re.compile(r"\[(\d+)\]\((\d\d)-[\w-]+\.md\)")
NAME = re.compile(r"`([^`]+)`")


def rows(language):
    """Return the cells of each term: English, Chinese, names in transformers, in papers, link."""
    text = (DOCS / language / "glossary.md").read_text(encoding="utf-8")
    found = [line.split(" | ") for line in ROW.findall(text)]
    terms = [cells for cells in found if LINK.fullmatch(cells[-1])]
    assert len(found) - len(terms) == len(re.findall("^## ", text, re.M)), "a header each"
    first = LANGUAGES.index(language)
    return [
        (cells[first], cells[1 - first], NAME.findall(names), papers, link)
        for *cells, _, names, papers, link in terms
    ]


@cache
def known():
    """Return what transformers defines, by the names that a reader meets."""
    found = {*dir(transformers), *dir(PreTrainedModel), *dir(transformers.PreTrainedTokenizerFast)}
    found |= {*dir(transformers.GenerationMixin), *ALL_ATTENTION_FUNCTIONS.valid_keys()}
    for kind in ("Llama", "Mistral", "Mixtral", "Bert", "Bart", "GPT2"):
        found |= {*getattr(transformers, f"{kind}Config")().to_dict()}
        model = getattr(transformers, f"{kind}Model")
        found |= {*inspect.signature(model.forward).parameters}
        found |= {*dir(inspect.getmodule(model)), *dir(getattr(transformers, f"{kind}Config"))}
    for kind in (transformers.LlamaForCausalLM, transformers.BartForConditionalGeneration):
        found |= {*inspect.signature(kind.forward).parameters}
    if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters:  # from 5.24
        found |= {"past_key_values"}
    for settings in (transformers.GenerationConfig(), transformers.Seq2SeqTrainingArguments("x")):
        found |= {*vars(settings)}
    found |= {*dir(inspect.getmodule(transformers.MarianModel)), *dir(transformers.masking_utils)}
    options = inspect.getsource(PreTrainedModel.from_pretrained)
    found |= {*re.findall(r"\w+", options)}
    found |= {*inspect.signature(transformers.Trainer.compute_loss).parameters}
    llama = transformers.LlamaConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=4)
    with torch.device("meta"):
        modules = transformers.LlamaForCausalLM(llama).named_modules()
    return found | {part for name, _ in modules for part in name.split(".")}


def test_both_languages_have_the_same_terms_names_and_chapters():
    english, chinese = map(rows, LANGUAGES)
    assert english == chinese
    assert len(english) > 60
    assert len({term for term, *_ in english}) == len(english), "a term twice"


@pytest.mark.parametrize("term", rows("en"), ids=lambda term: term[0])
def test_a_term_links_to_its_chapter_and_has_names_that_exist(term):
    english, _, names, _, link = term
    shown, number = LINK.fullmatch(link).groups()
    assert int(shown) == int(number)
    assert not {*names} - known(), f"not in transformers: {english}"


def test_a_name_that_transformers_does_not_have_is_found():
    assert not {"hidden_sizes", "num_heads", "TformerDecoderConfig"} & known()
