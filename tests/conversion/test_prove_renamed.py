"""`prove` compares models whose files have other names for tensors than the class has."""

import pytest
import torch
import transformers

from conversion.proving.comparison import prove

SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES["num_attention_heads"] = 4
RENAMED = {
    "GPTNeoX": ({}, "embed_out.weight"),
    "Mixtral": ({"num_key_value_heads": 2, "num_local_experts": 4}, "lm_head.weight"),
}


@pytest.mark.parametrize("name", RENAMED)
def test_a_head_that_differs_is_named_as_the_file_names_it(name, tmp_path):
    fields, head = RENAMED[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **fields)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    model.save_pretrained(tmp_path / "one")
    with torch.no_grad():
        model.lm_head.weight.mul_(1.5)
    model.save_pretrained(tmp_path / "other")
    for folder, verdict in (("one", "same"), ("other", "differs")):
        answers = {a.question: a for a in prove(tmp_path / "one", tmp_path / folder).answers}
        assert (answers["weights"].verdict, answers["logits"].verdict) == (verdict, verdict)
    assert f"first {head}" in answers["weights"].seen
