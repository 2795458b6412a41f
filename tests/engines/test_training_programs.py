"""Models that training programs make and save themselves: after an import they compute the same.

tests/conversion/test_conversion_programs.py asks our references of these programs, and here the
programs are asked. Where one is missing, its tests are skipped and name it.
"""

import random
from importlib import import_module

import pytest
import torch

from conversion import import_checkpoint
from hf_tformer import TformerEncoderForMaskedLM
from support.drawn_programs import (
    centred,
    litgpt_settings,
    randomised,
    torchtune_settings,
    x_transformers_settings,
)
from support.plain import ours_of
from support.programs_in import assert_same_encoder, assert_same_model

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("seed", range(24))
def test_what_litgpt_saves_is_imported(seed, tmp_path):
    litgpt = pytest.importorskip("litgpt", reason="litgpt is not installed")
    from litgpt.utils import save_config

    config = litgpt.Config(**litgpt_settings(random.Random(seed)))
    theirs = randomised(litgpt.GPT(config), seed)
    (tmp_path / "theirs").mkdir()
    save_config(config, tmp_path / "theirs")
    torch.save({"model": theirs.state_dict()}, tmp_path / "theirs/lit_model.pth")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    transformer = theirs.transformer
    assert_same_model(ours_of(tmp_path / "ours"), theirs, transformer.h, transformer.wte.weight)


@pytest.mark.parametrize("seed", range(24))
def test_what_torchtune_saves_is_imported(seed, tmp_path):
    models = pytest.importorskip("torchtune.models", exc_type=ImportError)
    built, said = torchtune_settings(random.Random(seed))
    package = import_module(f"{models.__name__}.{said['model']}._component_builders")
    theirs = randomised(getattr(package, said["model"])(**built), seed)
    path = tmp_path / "model-00001-of-00001.bin"
    torch.save(theirs.state_dict(), path)
    import_checkpoint(path, tmp_path / "ours", settings=said)
    table = theirs.tok_embeddings.weight
    assert_same_model(ours_of(tmp_path / "ours"), theirs, theirs.layers, table)


def x_transformers(seed, causal):
    """What its file does not say, a model of x-transformers, and what follows each layer."""
    program = pytest.importorskip("x_transformers", reason="x-transformers is not installed")
    layers, wrapper, said = x_transformers_settings(random.Random(seed), causal)
    stack = program.Decoder if causal else program.Encoder
    theirs = program.TransformerWrapper(attn_layers=stack(**layers, verbose=False), **wrapper)
    theirs = centred(randomised(theirs, seed), layers["norm_add_unit_offset"])
    mlps = theirs.attn_layers.layers[1::2]
    return said, theirs, [norms[2] or residual for norms, _, residual in mlps]


@pytest.mark.parametrize("seed", range(30))
def test_what_a_decoder_of_x_transformers_saves_is_imported(seed, tmp_path):
    said, theirs, blocks = x_transformers(seed, causal=True)
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    import_checkpoint(tmp_path / "model.pt", tmp_path / "ours", "x-transformers", settings=said)
    ours = ours_of(tmp_path / "ours")
    assert_same_model(ours, theirs, blocks, theirs.token_emb.emb.weight)


@pytest.mark.parametrize("seed", range(30))
def test_what_an_encoder_of_x_transformers_saves_is_imported(seed, tmp_path):
    said, theirs, _ = x_transformers(seed, causal=False)
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    import_checkpoint(
        tmp_path / "model.pt", tmp_path / "ours", "x-transformers-encoder", settings=said
    )
    ours = TformerEncoderForMaskedLM.from_pretrained(tmp_path / "ours").eval()

    def padded(ids, mask):
        return theirs(ids, mask=mask)

    assert_same_encoder(ours, theirs, theirs.token_emb.emb.weight, padded=padded)
