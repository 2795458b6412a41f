"""Models of transformers and their maps, as the attention page shows them."""

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_tformer import attention_maps
from support.families import DECODER, random_rows

IDS = torch.tensor([[5, 6, 7, 8, 5, 6, 9]])
TARGET = {"decoder_input_ids": torch.tensor([[1, 9, 8]])}
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4}
BART = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "encoder_layers": 1}
BART |= {"decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
# name → a model, and whether what its weights come from is known (BLOOM asks for no backend)
OTHERS = {
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(vocab_size=50, **SIZES, **HEADS, num_key_value_heads=2),
        True,
    ),
    "bert": (BertModel, BertConfig(vocab_size=50, **SIZES, **HEADS), True),
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4), True),
    "bart": (BartForConditionalGeneration, BartConfig(vocab_size=50, **BART), True),
    "t5": (
        T5ForConditionalGeneration,
        T5Config(vocab_size=50, d_model=32, d_ff=32, d_kv=8, num_layers=2, num_heads=4),
        True,
    ),
    "gemma2": (
        Gemma2ForCausalLM,
        Gemma2Config(
            vocab_size=50, **SIZES, **HEADS, num_key_value_heads=2, head_dim=8, sliding_window=3
        ),
        True,
    ),
    "bloom": (
        BloomForCausalLM,
        BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=4),
        False,
    ),
}


def build(name):
    torch.manual_seed(0)
    model_class, config, _ = OTHERS[name]
    model = model_class(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def maps_of(model):
    return attention_maps(model, {"input_ids": IDS, **target_of(model)})


def target_of(model):
    return TARGET if model.config.is_encoder_decoder else {}


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    '"',
    "'",
    "\n\u2028",
    "\x1b[31m",
    "\\u003c/script>",
    "x" * 10_000,
    "\u202eabc",
]


def hostile_maps():
    maps = attention_maps(DECODER.build(), {"input_ids": torch.tensor([random_rows([10])[0]])})
    maps["decoder"].rows[:] = HOSTILE
    maps["decoder"].columns[:] = HOSTILE
    maps.title = "</title><script>alert(1)</script>"
    return maps
