"""One interface to all families, so that each promise is written once and kept by all.

How a family is asked is hf_tformer/testing/families.py, which models of others are asked by, too.
"""

import pytest
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import hf_tformer
from hf_tformer.testing.families import (
    BACKENDS,
    IGNORED,
    PAD,
    Decoder,
    Encoder,
    Mixture,
    Seq2Seq,
    pad,
    random_rows,
    until_end,
)

DECODER = Decoder(
    "decoder",
    hf_tformer.TformerDecoderConfig,
    hf_tformer.TformerDecoderForCausalLM,
    hf_tformer.TformerDecoderModel,
    AutoModelForCausalLM,
    Decoder.usual_sizes,
)
SEQ2SEQ = Seq2Seq(
    "seq2seq",
    hf_tformer.TformerSeq2SeqConfig,
    hf_tformer.TformerSeq2SeqForConditionalGeneration,
    hf_tformer.TformerSeq2SeqModel,
    AutoModelForSeq2SeqLM,
    Seq2Seq.usual_sizes,
)
ENCODER = Encoder(
    "encoder",
    hf_tformer.TformerEncoderConfig,
    hf_tformer.TformerEncoderForMaskedLM,
    hf_tformer.TformerEncoderModel,
    AutoModelForMaskedLM,
    Encoder.usual_sizes,
)


class GatedMixture(Mixture):
    """Experts are gated: what a test of all families says of MLPs without a gate is left out."""

    def config(self, **overrides):
        if overrides.get("mlp_type") == "plain":
            del overrides["mlp_type"]
        return super().config(**overrides)


MIXTURE = GatedMixture(
    "mixture",
    hf_tformer.TformerMixtureConfig,
    hf_tformer.TformerMixtureForCausalLM,
    hf_tformer.TformerMixtureModel,
    AutoModelForCausalLM,
    Mixture.usual_sizes,
)
FAMILIES = (DECODER, SEQ2SEQ, ENCODER, MIXTURE)
WRITERS = (DECODER, SEQ2SEQ, MIXTURE)  # those that generate
DECODERS = (DECODER, MIXTURE)
DENSE = (DECODER, SEQ2SEQ, ENCODER)


def build_for_graphs(family, backend="sdpa", **fields):
    return family.for_one_graph(family.build(backend, **fields))


by_model_type = {family.config_class.model_type: family for family in FAMILIES}
by_writers = pytest.mark.parametrize("family", WRITERS, ids=lambda family: family.name)


def first_of(families):
    """For what takes seconds: the first family in `make test`, every one in `make test-slow`."""
    first, *others = families
    slow = [pytest.param(family, marks=pytest.mark.slow) for family in others]
    return pytest.mark.parametrize("family", [first, *slow], ids=lambda family: family.name)


decoder_first, writer_first = first_of(FAMILIES), first_of(WRITERS)

__all__ = [
    "BACKENDS",
    "DECODER",
    "DECODERS",
    "DENSE",
    "ENCODER",
    "FAMILIES",
    "IGNORED",
    "MIXTURE",
    "PAD",
    "SEQ2SEQ",
    "WRITERS",
    "build_for_graphs",
    "by_model_type",
    "by_writers",
    "decoder_first",
    "pad",
    "random_rows",
    "until_end",
    "writer_first",
]
