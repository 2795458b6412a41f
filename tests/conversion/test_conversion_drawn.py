"""Random models of transformers are converted and proven, or refused by a sentence."""

import pytest
import torch
import transformers

from conversion import ConversionError, export_checkpoint, import_checkpoint
from conversion.engine.checkpoints import open_checkpoint
from support import drawn_decoders, drawn_distances, drawn_encoders, drawn_mixtures
from support.parity import randomise

pytestmark = pytest.mark.usefixtures("warm_python")

DRAWS = {
    **dict.fromkeys(drawn_encoders.FORMATS, drawn_encoders.draw),
    **dict.fromkeys(drawn_distances.FORMATS, drawn_distances.draw),
    **dict.fromkeys(drawn_decoders.FORMATS, drawn_decoders.draw),
    **dict.fromkeys(drawn_mixtures.FORMATS, drawn_mixtures.draw),
}

# What a draw spoils is refused before a model is made of it, or by the name of a field.
FIELDS = {
    "position_embedding_type",
    "pad_token_id",
    "eos_token_id",
    "mask_token_id",
    "is_decoder",
    "max_position_embeddings",
    "hidden_act",
    "relative_attention_num_buckets",
    "embedding_size",
    "num_attention_heads",
    "num_labels",
    "classifier_pooling",
    "partial_rotary_factor",
    "num_hidden_layers",
    "head_dim",
    "apply_residual_connection_post_layernorm",
    "slow_but_exact",
    "clip_qkv",
    "alibi",
    "alibi_bias_max",
    "qk_ln",
    "no_bias",
    "logit_scale",
    "expansion_ratio",
    "decoder_ffn_dim",
    "rope_type",
    "encoder_layers",
}
FIELDS |= {"alibi", "num_ln_in_parallel_attn", "parallel_attn", "num_kv_heads", "rotary_dim"}
FIELDS |= {"num_key_value_heads", "qk_layernorm", "use_qk_norm", "sliding_window"}
FIELDS |= {"num_experts", "num_experts_per_tok", "mlp_only_layers"}
FIELDS |= {"attention_scale", "residual_multiplier", "num_local_experts", "layer_types"}


def converted(form, seed, folder):
    """Whether the drawn model converts both ways, or why not; None where there is no such model."""
    class_name, config_name, fields = DRAWS[form](form, seed)
    try:
        config = getattr(transformers, config_name)(**fields)
        model = randomise(getattr(transformers, class_name)(config), seed)
        model.save_pretrained(folder / "theirs", max_shard_size="9KB" if seed % 3 else "5GB")
    except Exception:  # whatever their constructors raise for sizes that do not fit
        return None
    try:
        done = import_checkpoint(folder / "theirs", folder / "ours")
    except ConversionError as error:
        return str(error)
    assert done.difference is not None
    back = export_checkpoint(folder / "ours", folder / "back", to=form)
    assert back.difference is not None
    return True


def count(form, seeds, tmp_path):
    results = []
    for seed in seeds:
        (tmp_path / str(seed)).mkdir()
        results.append(converted(form, seed, tmp_path / str(seed)))
    refusals = [result for result in results if isinstance(result, str)]
    assert not [words for words in refusals if not any(name in words for name in FIELDS)]
    return results.count(True), len(refusals)


def assert_all_came_back(tmp_path):
    """Each tensor of theirs, under its name and with its bits."""
    for folder in (back.parent for back in tmp_path.glob("*/back")):
        theirs, back = (open_checkpoint(folder / name) for name in ("theirs", "back"))
        assert set(theirs.names()) == set(back.names())
        for name in theirs.names():
            assert torch.equal(theirs.read(name), back.read(name)), (folder, name)


@pytest.mark.parametrize("form", DRAWS)
def test_a_few_drawn_models_convert_or_are_refused(form, tmp_path):
    assert count(form, range(2), tmp_path)[0] >= 1
    if form in {**drawn_decoders.FORMATS, **drawn_mixtures.FORMATS}:
        assert_all_came_back(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", DRAWS)
def test_many_drawn_models_convert_or_are_refused(form, tmp_path):
    draws = 50 if form in drawn_mixtures.FORMATS else 100  # experts take twice as long
    equal, refused = count(form, range(100, 100 + draws), tmp_path)
    assert equal > 0.6 * draws
    assert refused > 0
    if form in {**drawn_decoders.FORMATS, **drawn_mixtures.FORMATS}:
        assert_all_came_back(tmp_path)
