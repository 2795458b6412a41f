"""What is peculiar to T5: heads that the tensors tell, old files, texts, training, refusals."""

import json
import random
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file

from conversion import ConversionError, export_checkpoint, import_checkpoint
from conversion.command import main
from hf_tformer import TformerSeq2SeqForConditionalGeneration
from support.converting import (
    CASES,
    assert_refused,
    edit_config,
    edit_weights,
    save_ours,
    save_theirs,
)
from support.parity import CLOSE, random_ids, randomise
from support.parity_seq2seq import even_batch, left_padded_source, right_padded_batch, with_own_head

pytestmark = pytest.mark.usefixtures("warm_python")
HEAD, TABLE = "lm_head.weight", "shared.weight"
CLASSES = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}


def save_shallow(name, folder):
    """A model that can write: theirs fails to where the decoder is deeper than the encoder."""
    case = CASES[name]
    return save_theirs(replace(case, theirs={**case.theirs, "num_decoder_layers": 2}), folder)


def imported(tmp_path):
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    return TformerSeq2SeqForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()


def read_json(path):
    return json.loads(path.read_text())


def as_released(folder):
    """Makes config.json what it is on the Hub, where nothing stands that transformers 5 derives.

    tie_word_embeddings says there whether states are scaled, and nothing about the head.
    """
    config = read_json(folder / "config.json")
    is_scaled = config.pop("scale_decoder_outputs", False)
    for name in ("dense_act_fn", "is_gated_act", "is_decoder", "num_decoder_layers"):
        del config[name]
    config |= {"tie_word_embeddings": is_scaled, "n_positions": 512, "output_past": True}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["t5", "t5 flan", "mt5", "umt5"])
def test_a_folder_as_it_was_released_computes_the_same_and_comes_back(name, tmp_path):
    theirs = save_shallow(name, tmp_path / "theirs")
    as_released(tmp_path / "theirs")
    theirs = type(theirs).from_pretrained(tmp_path / "theirs").eval()
    batch = right_padded_batch()
    torch.testing.assert_close(imported(tmp_path)(**batch).logits, theirs(**batch).logits, **CLOSE)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to=name.split()[0])
    back, released = (read_json(tmp_path / x / "config.json") for x in ("back", "theirs"))
    if name.startswith("t5"):  # what older versions go by
        assert back["tie_word_embeddings"] == released["tie_word_embeddings"]


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_distances_of_every_range_count_the_same(name, tmp_path):
    """All beyond 128 share one range, and so do more and more before."""
    theirs = save_shallow(name, tmp_path / "theirs")
    source, target = random_ids(2, 150), random_ids(2, 140, seed=1)
    batch = {"input_ids": source, "decoder_input_ids": target}
    torch.testing.assert_close(imported(tmp_path)(**batch).logits, theirs(**batch).logits, **CLOSE)


def test_an_old_pickle_with_every_table_and_a_stray_one_is_read(tmp_path):
    """As t5-small was saved in 2020."""
    theirs = save_shallow("t5", tmp_path / "theirs")
    as_released(tmp_path / "theirs")
    edit_config(tmp_path / "theirs", architectures=["T5WithLMHeadModel"])
    stray = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    tables = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", TABLE, HEAD}
    state = theirs.state_dict()
    assert tables <= state.keys()
    (tmp_path / "theirs/model.safetensors").unlink()
    torch.save({**state, stray: torch.ones(32, 3)}, tmp_path / "theirs/pytorch_model.bin")
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4
    assert HEAD not in load_file(tmp_path / "ours/model.safetensors")


def test_the_table_may_stand_under_the_name_of_a_stack(tmp_path):
    save_shallow("t5 flan", tmp_path / "theirs")
    edit_weights(
        tmp_path / "theirs",
        lambda tensors: tensors.update({"decoder.embed_tokens.weight": tensors.pop(TABLE)}),
    )
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4
    assert not read_json(tmp_path / "ours/config.json")["tie_word_embeddings"]


@pytest.mark.parametrize("name", ["t5", "t5 flan", "umt5"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"repetition_penalty": 1.5}], ids=str)
def test_texts_are_the_same_with_a_cache(name, options, tmp_path):
    """Start and padding are one token, as in all of them."""
    theirs = save_shallow(name, tmp_path / "theirs")
    ours = imported(tmp_path)
    options |= {"max_new_tokens": 9, "pad_token_id": 0, "decoder_start_token_id": 0}
    for batch in (right_padded_batch(), left_padded_source()):
        source = {name: batch[name] for name in ("input_ids", "attention_mask")}
        written, expected = (model.generate(**source, **options) for model in (ours, theirs))
        assert written.tolist() == expected.tolist()


@pytest.mark.parametrize("place", ["generation_config.json", "config.json"])
def test_the_habits_of_generation_come_along(place, tmp_path):
    theirs = save_shallow("t5", tmp_path / "theirs")
    if place == "config.json":  # as old folders do
        (tmp_path / "theirs/generation_config.json").unlink()
        edit_config(tmp_path / "theirs", num_beams=3, decoder_start_token_id=0)
    else:
        theirs.generation_config.update(num_beams=3, decoder_start_token_id=0)
        theirs.generation_config.save_pretrained(tmp_path / "theirs")
    habits = imported(tmp_path).generation_config
    assert (habits.num_beams, habits.decoder_start_token_id) == (3, 0)


@pytest.mark.parametrize("name", ["t5", "t5 flan"])
def test_shards_are_read_and_tell_of_the_head(name, tmp_path):
    theirs = save_shallow(name, tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="9KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 3
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to=theirs.config.model_type)
    whole, back = (load_file(tmp_path / x / "model.safetensors") for x in ("whole", "back"))
    assert whole.keys() == back.keys()
    assert all(torch.equal(whole[tensor], back[tensor]) for tensor in whole)


def test_the_command_converts_both_ways_and_verifies(tmp_path, capsys):
    save_shallow("t5 flan", tmp_path / "theirs")
    theirs, ours, back = (str(tmp_path / name) for name in ("theirs", "ours", "back"))
    assert main(["import", theirs, ours, "--dtype", "bfloat16"]) == 0
    assert main(["export", ours, back, "--to", "t5"]) == 0
    assert capsys.readouterr().out.count("largest difference of the logits") == 2
    assert main(["verify", ours, back]) == 0
    assert main(["formats", "umt5"]) == 0
    assert "UMT5ForConditionalGeneration" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["t5", "t5 flan", "umt5"])
def test_training_goes_the_same_way(name, tmp_path):
    """From equal weights, by the same steps; dropout apart, which each draws for itself."""
    models = save_shallow(name, tmp_path / "theirs"), imported(tmp_path)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in models]
    losses = []
    for seed in range(8):
        batch = right_padded_batch() if seed % 2 else even_batch()
        for model, optimizer in zip(models, optimizers, strict=True):
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    theirs, ours = losses[::2], losses[1::2]
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert max(ours[-2:]) < min(ours[:2])


REFUSED = [
    ({"relative_attention_num_buckets": 16}, "relative_attention_num_buckets is 16"),
    ({"relative_attention_max_distance": 20}, "relative_attention_max_distance is 20"),
    ({"architectures": ["T5EncoderModel"]}, "T5EncoderModel"),
    ({"architectures": ["T5ForQuestionAnswering"]}, "T5ForQuestionAnswering"),
    ({"dense_act_fn": "prelu"}, "hidden_act is 'prelu'"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=str)
def test_what_ours_lacks_is_refused_by_name(fields, words, tmp_path):
    save_shallow("t5", tmp_path / "theirs")
    edit_config(tmp_path / "theirs", **fields)
    assert_refused(tmp_path, words)


@pytest.mark.parametrize("model", ["T5EncoderModel", "T5Model", "UMT5EncoderModel"])
def test_other_classes_of_the_family_are_refused_by_name(model, tmp_path):
    config_class = getattr(transformers, model).config_class
    sizes = {"vocab_size": 23, "d_model": 12, "d_kv": 5, "d_ff": 9, "num_layers": 1, "num_heads": 2}
    getattr(transformers, model)(config_class(**sizes)).save_pretrained(tmp_path / "theirs")
    assert_refused(tmp_path, model, "ForConditionalGeneration")


NO_BIASES = dict.fromkeys(("attention_bias", "attention_output_bias", "mlp_bias"), False)
LIKE_T5 = {
    "position_embedding_type": "none",
    "score_bias": "relative",
    "norm_type": "rmsnorm",
    "norm_position": "pre",
    **NO_BIASES,
    "lm_head_bias": False,
    "attention_scale": 1.0,
    "scale_embedding": False,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
PER_LAYER = {"score_bias": "relative_per_layer", "logit_scale": 12**-0.5}
EXPRESSIBLE = [
    ("t5", {"logit_scale": 12**-0.5}),
    ("t5", {"tie_word_embeddings": False, "mlp_type": "gated", "hidden_act": "gelu_new"}),
    ("t5", {"hidden_act": "gelu", "head_dim": 5}),
    ("mt5", {"tie_word_embeddings": False}),
    ("umt5", PER_LAYER),
]
OTHERS = [
    ("t5", {"score_bias": "relative_per_layer"}),
    ("t5", {"score_bias": None}),
    ("t5", {"position_embedding_type": "learned"}),
    ("t5", {"logit_scale": 0.5}),
    ("t5", {"attention_scale": None}),
    ("t5", {"share_encoder_decoder_embeddings": False}),
    ("t5", {"num_key_value_heads": 1}),
    ("t5", {"value_head_dim": 5}),
    ("t5", {"norm_type": "layernorm"}),
    ("t5", {"norm_position": "both"}),
    ("t5", {"final_norm": False}),
    ("t5", {"embedding_norm": True}),
    ("t5", {"qk_norm": True}),
    ("t5", {"lm_head_bias": True}),
    ("t5", {"mlp_bias": True}),
    ("t5", {"hidden_act": "gelu", "mlp_type": "gated"}),
    ("mt5", {"logit_scale": 12**-0.5}),
    ("umt5", {"logit_scale": 1.0, "score_bias": "relative_per_layer"}),
    ("umt5", {"score_bias": "relative"}),
]


@pytest.mark.parametrize(("to", "fields"), OTHERS, ids=str)
def test_an_export_names_the_field_that_cannot_be_expressed(to, fields, tmp_path):
    save_ours(tmp_path / "ours", "tformer_seq2seq", **{**LIKE_T5, **fields})
    with pytest.raises(ConversionError, match=next(iter(fields))):
        export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to=to)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize(("to", "fields"), EXPRESSIBLE, ids=str)
def test_a_model_of_ours_in_their_layout_is_exported_and_proven(to, fields, tmp_path):
    save_ours(tmp_path / "ours", "tformer_seq2seq", **{**LIKE_T5, **fields})
    assert export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to=to).difference < 1e-4


ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "gelu_pytorch_tanh", "tanh", "quick_gelu")


def drawn(seed):
    """A model of the family with random weights, of any sizes; what it says of ids is drawn too."""
    rng = random.Random(seed)
    name, vocab_size = rng.choice(list(CLASSES.values())), rng.randint(9, 70)
    act = rng.choice(ACTIVATIONS)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=vocab_size,
        d_model=rng.randint(1, 24),
        d_kv=rng.randint(1, 9),
        d_ff=rng.randint(1, 40),
        num_layers=rng.randint(1, 4),
        num_decoder_layers=rng.choice([None, 1, 2, 5]),
        num_heads=rng.randint(1, 5),
        feed_forward_proj=rng.choice([act, f"gated-{act}"]),
        layer_norm_epsilon=10 ** rng.uniform(-9, -1),
        dropout_rate=rng.choice([0, 0.1]),
        tie_word_embeddings=rng.random() < 0.5,
        pad_token_id=rng.choice([0, 0, rng.randrange(9)]),
        eos_token_id=rng.choice([1, None, [1, 3], rng.randrange(vocab_size)]),
        decoder_start_token_id=rng.choice([0, rng.randrange(9)]),
        use_cache=rng.random() < 0.8,
    )
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    model = with_own_head(model) if rng.random() < 0.5 else model
    return randomise(model, seed).to(rng.choice([torch.float32, torch.bfloat16]))


def assert_drawn_goes_there_and_back(seed, folder):
    theirs = drawn(seed)
    theirs.save_pretrained(folder / "theirs", max_shard_size=seed % 3 * 1000 + 3000)
    assert import_checkpoint(folder / "theirs", folder / "ours").difference < 1e-4
    to = theirs.config.model_type
    assert export_checkpoint(folder / "ours", folder / "back", to=to).difference < 1e-4
    back = type(theirs).from_pretrained(folder / "back").state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, back[name]), name


@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_model_comes_back_as_the_same_bits(seed, tmp_path):
    assert_drawn_goes_there_and_back(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_drawn_models_come_back_as_the_same_bits(seed, tmp_path):
    assert_drawn_goes_there_and_back(seed, tmp_path)
