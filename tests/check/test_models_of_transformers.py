"""`check` accuses no model that transformers itself has: they are written in many ways."""

import pytest
import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
)

from hf_tformer.checking import check

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_python", "read_here")]

# Each configuration takes those that it has.
SMALL = {
    **{"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "embedding_size": 32},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    **{"d_model": 32, "d_ff": 48, "num_layers": 2, "num_heads": 4, "ffn_dim": 48},
    **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48, "rotary_dim": 4, "hidden_dim": 48},
    **{"dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64, "n_positions": 64},
    **{"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 32, "state_size": 8, "time_step_rank": 4, "sliding_window": 6},
    **{"word_embed_proj_dim": 32, "attention_heads": 4},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
DECODERS = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi", "gpt2", "gpt_neox"),
    *("gptj", "opt", "bloom", "mixtral", "qwen3_moe", "olmo2", "mamba", "stablelm", "starcoder2"),
    *("cohere2", "granite", "smollm3", "codegen", "mpt", "gpt_bigcode", "xglm"),
)
ENCODERS = (
    *("bert", "roberta", "distilbert", "electra", "albert", "modernbert", "deberta-v2", "mpnet"),
)


@pytest.mark.parametrize("kind", [*DECODERS, *ENCODERS])
def test_no_model_of_transformers_is_accused(kind, tmp_path):
    known = CONFIG_MAPPING[kind]()
    config = type(known)(**{name: size for name, size in SMALL.items() if hasattr(known, name)})
    auto = AutoModelForMaskedLM if kind in ENCODERS else AutoModelForCausalLM
    torch.manual_seed(0)
    model = auto.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    model.save_pretrained(tmp_path)
    found = check(tmp_path)
    assert [(f.name, f.detail) for f in found if f.verdict == "fail"] == []
    assert [f.verdict for f in found if f.name == "forward"] == ["ok"]
