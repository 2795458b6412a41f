"""The formats of programs that save the weights of plain PyTorch modules."""

from . import (
    attention_is_all_you_need,
    litgpt,
    llms_from_scratch,
    meta_llama,
    nanochat,
    nanogpt,
    torch_transformer,
    torchtune,
    tutorial_gpt,
    tutorial_seq2seq,
    x_transformers,
)

FORMATS = (
    *meta_llama.FORMATS,
    *nanogpt.FORMATS,
    *litgpt.FORMATS,
    *nanochat.FORMATS,
    *torchtune.FORMATS,
    *x_transformers.FORMATS,
    *llms_from_scratch.FORMATS,
    *tutorial_seq2seq.FORMATS,
    *tutorial_gpt.FORMATS,
    *attention_is_all_you_need.FORMATS,
    *torch_transformer.FORMATS,
)
