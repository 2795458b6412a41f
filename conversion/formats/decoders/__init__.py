"""The formats of decoders in transformers, one file for each kin."""

from . import (
    bloom,
    falcon,
    gemma,
    glm,
    gpt2,
    granite,
    llama,
    mpt,
    nanochat,
    neox,
    olmo,
    opt,
    phi,
    stablelm,
    starcoder2,
)

FORMATS = (
    *llama.FORMATS,
    *granite.FORMATS,
    *phi.FORMATS,
    *olmo.FORMATS,
    *nanochat.FORMATS,
    *gemma.FORMATS,
    *glm.FORMATS,
    *gpt2.FORMATS,
    *opt.FORMATS,
    *starcoder2.FORMATS,
    *stablelm.FORMATS,
    *bloom.FORMATS,
    *mpt.FORMATS,
    *neox.FORMATS,
    *falcon.FORMATS,
)
