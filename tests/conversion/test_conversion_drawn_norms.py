"""Random decoders of transformers are converted and proven, and write the same texts."""

import pytest
import torch
from safetensors.torch import load_file

from conversion import export_checkpoint, import_checkpoint
from hf_tformer import TformerDecoderForCausalLM
from support.drawn_norms import CLASSES, draw
from support.parity import randomise

pytestmark = pytest.mark.usefixtures("warm_python")


def drawn(form, seed):
    """A model of theirs with random weights; None where their constructors refuse the sizes."""
    try:
        return randomise(draw(form, seed), seed).eval()
    except (ValueError, ArithmeticError):
        return None


def check(form, seed, folder):
    """Whether there is such a model; then it converts both ways, and ours writes as it does."""
    theirs = drawn(form, seed)
    if theirs is None:
        return False
    # The dtype and the shards of a large checkpoint.
    dtype = torch.bfloat16 if seed % 2 else torch.float32
    theirs.to(dtype).save_pretrained(folder / "theirs", max_shard_size="5KB")
    for shard in (folder / "theirs").glob("*.safetensors"):
        assert {tensor.dtype for tensor in load_file(shard).values()} == {dtype}
    import_checkpoint(folder / "theirs", folder / "ours")
    export_checkpoint(folder / "ours", folder / "back", to=form)
    assert_same_bits(*(read_all(folder / name) for name in ("theirs", "back")))
    pair = (
        model_class.from_pretrained(folder / name, dtype=torch.float32).eval()
        for model_class, name in ((TformerDecoderForCausalLM, "ours"), (type(theirs), "theirs"))
    )
    assert_same_texts(*pair, seed)
    return True


def read_all(folder):
    shards = (load_file(path) for path in folder.glob("*.safetensors"))
    return {name: tensor for shard in shards for name, tensor in shard.items()}


def assert_same_bits(theirs, back):
    assert back.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert back[name].dtype == tensor.dtype, name
        assert torch.equal(back[name], tensor), name


def assert_same_texts(ours, theirs, seed):
    """With a cache, beyond any window, from prompts of two lengths; by beams too."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, theirs.config.vocab_size, (2, 7), generator=generator)
    mask = torch.tensor([[0] * 4 + [1] * 3, [1] * 7])
    for beams in (1, 3):
        written = [
            model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=6,
                num_beams=beams,
                do_sample=False,
                pad_token_id=0,
            )
            for model in (ours, theirs)
        ]
        assert torch.equal(*written)


@pytest.mark.slow
@pytest.mark.parametrize("form", CLASSES)
def test_a_drawn_decoder_converts_and_writes_the_same_texts(form, tmp_path):
    assert check(form, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", CLASSES)
def test_many_drawn_decoders_convert_and_write_the_same_texts(form, tmp_path):
    made = 0
    for seed in range(100, 150):
        (tmp_path / str(seed)).mkdir()
        made += check(form, seed, tmp_path / str(seed))
    assert made > 30
