"""Every renaming, backwards: a file in the foreign layout holds what the class held before."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from conversion.engine.rules import convert
from conversion.rehoming.candidate import built, candidates, planned
from conversion.rehoming.foreign_folder import ForeignFolder
from conversion.rehoming.table import RENAMINGS

SHARED = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 32,
}
OLD = {"n_embd": 24, "n_layer": 2, "n_head": 6, "n_positions": 32, "layer_norm_epsilon": 1e-5}
CHATGLM = {
    "num_layers": 2,
    "kv_channels": 8,
    "ffn_hidden_size": 20,
    "padded_vocab_size": 61,
    "seq_length": 32,
    "layernorm_epsilon": 1e-5,
    "multi_query_attention": True,
    "multi_query_group_num": 3,
    "add_qkv_bias": True,
}
FLA = {**SHARED, "num_heads": 6, "num_kv_heads": 3, "norm_eps": 1e-6, "rope_theta": 500.0}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
MPT = {"d_model": 24, "n_heads": 6, "n_layers": 2, "vocab_size": 61, "max_seq_len": 32}
# The fields of a small folder for each renaming, in the order of the table.
FIELDS = [
    ("RefinedWebModel", {**SHARED, "n_layer": 2, "n_head": 6, "multi_query": True}),
    ("qwen", {**OLD, "seq_length": 32, "kv_channels": 4, "rotary_emb_base": 500}),
    ("chatglm", {**SHARED, **CHATGLM}),
    ("mixformer-sequential", {**OLD, "rotary_dim": 2, "activation_function": "gelu_new"}),
    ("phi-msft", {**OLD, "rotary_dim": 2, "activation_function": "gelu_new"}),
    ("stablelm_epoch", {**SHARED, "num_key_value_heads": 3, "norm_eps": 1e-5, "rope_pct": 0.5}),
    ("internlm", {**SHARED, "bias": True}),
    ("internlm2", {**SHARED, "num_key_value_heads": 3, "bias": False}),
    ("minicpm", {**SHARED, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 8}),
    *(("baichuan", SHARED) for _ in range(4)),
    ("mistral", {**SHARED, "num_key_value_heads": 3, "head_dim": 4, "rope_scaling": YARN}),
    ("mpt", {**MPT, "attn_config": {"alibi": True, "attn_pdrop": 0.0, "rope": False}}),
    ("transformer", {**FLA, "qkv_bias": False, "qk_norm": False}),
    ("transformer", {**FLA, "qkv_bias": True, "qk_norm": False}),
    ("transformer", {**FLA, "qkv_bias": False, "qk_norm": True, "head_dim": 4}),
    ("nomic_bert", {**OLD, "n_inner": 20, "activation_function": "swiglu"}),
]
SIZES = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 20}


class Sizes:
    """Stands for the file, which does not exist yet: the sizes that a renaming reads there."""

    def __init__(self, renaming):
        self.places = {place: SIZES[name] for name, place in renaming.sizes.items()}

    def shape(self, name):
        return {dim: size for (other, dim), size in self.places.items() if other == name}


def words_of(renaming):
    return "".join(f"# {word}\n" for word in renaming.words)


def foreign_file(renaming, theirs, folder, auto):
    """Write a random model of the target in the foreign layout; return its own tensors."""
    config_class = CONFIG_MAPPING[renaming.target]
    fields = renaming.of_target(theirs, Sizes(renaming), set(config_class().to_dict()))
    model = built(config_class, fields, auto, tie_word_embeddings=False)
    model = model.to_empty(device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
        if any("NormHead" in word for word in renaming.words):
            head = model.lm_head.weight
            head.copy_(torch.nn.functional.normalize(head))
    model.save_pretrained(folder / "as_it_is")
    ours = load_file(folder / "as_it_is" / "model.safetensors")
    steps = planned(model, (*renaming.rules, *renaming.numbered(theirs)))
    tensors = dict(convert(steps, ours.__getitem__, model.config, to_ours=False))
    save_file({n: t.contiguous().clone() for n, t in tensors.items()}, folder / "model.safetensors")
    return ours


@pytest.mark.parametrize("number", range(len(RENAMINGS)))
def test_a_file_in_the_foreign_layout_gives_the_tensors_that_made_it(number, tmp_path):
    renaming, (kind, theirs) = RENAMINGS[number], FIELDS[number]
    auto = "AutoModel" if kind == "nomic_bert" else "AutoModelForCausalLM"
    ours = foreign_file(renaming, theirs, tmp_path, auto)
    places = {"AutoConfig": "configuration_x.X", auto: "modeling_x.X"}
    config = {**theirs, "model_type": kind, "auto_map": places, "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "modeling_x.py").write_text(words_of(renaming))
    foreign = ForeignFolder(tmp_path)
    one = next(found for found in candidates(foreign) if not isinstance(found, str))
    assert one.model.config.model_type == renaming.target
    new = tmp_path / "new"
    new.mkdir()
    one.write(new, foreign.checkpoint)
    found = load_file(new / "model.safetensors")
    assert found.keys() == ours.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=1e-6)


def test_every_renaming_has_a_folder_here():
    assert len(FIELDS) == len(RENAMINGS)
    assert all(
        kind in renaming.model_types for renaming, (kind, _) in zip(RENAMINGS, FIELDS, strict=True)
    )
