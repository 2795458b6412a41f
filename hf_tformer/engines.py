"""Inference engines that cannot serve an encoder-decoder, refused with what to do instead."""

import functools
from typing import Any

from transformers import PretrainedConfig

from .model.stacks_seq2seq import TformerSeq2SeqPreTrainedModel

UNSUPPORTED = ("vllm", "sglang")
model_class: Any = TformerSeq2SeqPreTrainedModel  # its constructor is replaced
build = model_class.__init__


@functools.wraps(build)
def refuse_or_build(
    model: TformerSeq2SeqPreTrainedModel, config: PretrainedConfig, *args: object, **kwargs: object
) -> None:
    engine = config._attn_implementation
    if engine in UNSUPPORTED:
        raise ValueError(
            f"model_type is {config.model_type!r}, and {engine} serves no encoder-decoder of this "
            "kind: use generate(), or export the folder by "
            "`tformer convert export FOLDER NEW_FOLDER --to ctranslate2`"
        )
    build(model, config, *args, **kwargs)


model_class.__init__ = refuse_or_build
