"""What was saved is what is loaded: bit for bit, tied as before, in every dtype and split."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.families import DECODER, SEQ2SEQ
from support.parity import randomise

TIES = [(tie, share) for tie in (True, False) for share in (True, False)]


def ids_for(family):
    ids = torch.randint(3, 97, (2, 7))
    return {"input_ids": ids, **family.target(ids[:, :5])}


def number_every_tensor(model):
    """Gives each parameter a value of its own, so that two that were swapped are told apart."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(number + 1)
    return model


def stored_names(folder):
    return {name for file in folder.glob("*.safetensors") for name in load_file(file)}


def load_strictly(load, folder, **kwargs):
    model, report = load(folder, output_loading_info=True, **kwargs)
    assert not any(report.values()), report
    return model.eval()


@pytest.mark.parametrize("how", ["class", "auto"])
def test_every_tensor_is_loaded_as_it_was_saved(family, tmp_path, how):
    model = number_every_tensor(family.build(qk_norm=True, lm_head_bias=True, embedding_norm=True))
    model.save_pretrained(tmp_path)
    opener = family.model_class if how == "class" else family.auto
    loaded = load_strictly(opener.from_pretrained, tmp_path)
    for (name, ours), theirs in zip(model.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_only_safetensors_are_written(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    endings = {path.suffix for path in tmp_path.iterdir()}
    assert endings == {".json", ".py", ".safetensors"}


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal"])
def test_a_loaded_model_gives_the_same_logits(family, tmp_path, positions):
    model = family.build(position_embedding_type=positions)
    model.save_pretrained(tmp_path)
    inputs = ids_for(family)
    loaded = load_strictly(family.model_class.from_pretrained, tmp_path)
    # Parameters are equal bit by bit (above). Products round by where in memory an expert begins.
    logits = loaded(**inputs).logits
    torch.testing.assert_close(logits, model(**inputs).logits, rtol=0, atol=2e-6)


def test_the_decoder_keeps_its_tie(tmp_path):
    for tie in (True, False):
        model = DECODER.build(tie_word_embeddings=tie)
        model.save_pretrained(tmp_path / str(tie))
        loaded = load_strictly(DECODER.model_class.from_pretrained, tmp_path / str(tie))
        same = loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()
        assert same == tie
        assert ("lm_head.weight" in stored_names(tmp_path / str(tie))) != tie


@pytest.mark.parametrize(("tie", "share"), TIES)
@pytest.mark.parametrize("source_vocab_size", [None, 97])
def test_the_encoder_decoder_keeps_its_ties_in_every_combination(
    tmp_path, tie, share, source_vocab_size
):
    if share and source_vocab_size:
        pytest.skip("one table cannot serve two vocabularies: refused by the configuration")
    model = SEQ2SEQ.build(
        tie_word_embeddings=tie,
        share_encoder_decoder_embeddings=share,
        source_vocab_size=source_vocab_size,
    )
    model.save_pretrained(tmp_path)
    loaded = load_strictly(SEQ2SEQ.model_class.from_pretrained, tmp_path)
    source, target = (
        loaded.model.encoder.embed_tokens.weight,
        loaded.model.decoder.embed_tokens.weight,
    )
    assert (source.data_ptr() == target.data_ptr()) == share
    assert (loaded.lm_head.weight.data_ptr() == target.data_ptr()) == tie
    tables = {name for name in stored_names(tmp_path) if "embed_tokens" in name or "shared" in name}
    separate = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
    assert tables == ({"model.shared.weight"} if share else separate)
    assert ("lm_head.weight" in stored_names(tmp_path)) != tie
    inputs = ids_for(SEQ2SEQ)
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


def test_a_missing_tensor_is_reported_not_made_up_in_silence(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in tensors if "q_proj" in name)
    table = "model.shared.weight" if family is SEQ2SEQ else "model.embed_tokens.weight"
    del tensors[lost], tensors[table]
    save_file(
        {**tensors, "stranger": torch.ones(1)},
        tmp_path / "model.safetensors",
        metadata={"format": "pt"},
    )
    _, report = family.model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert {lost, table} <= set(report["missing_keys"])
    assert set(report["unexpected_keys"]) == {"stranger"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_dtype_of_the_file_is_the_dtype_of_the_model(family, tmp_path, dtype):
    family.build().to(dtype).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == str(dtype).split(".")[1]
    for options in ({}, {"dtype": "auto"}):
        assert family.model_class.from_pretrained(tmp_path, **options).dtype == dtype
    assert family.model_class.from_pretrained(tmp_path, dtype=torch.float32).dtype == torch.float32


def test_a_checkpoint_may_be_split_into_shards(family, tmp_path):
    model = family.build()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    inputs = ids_for(family)
    loaded = load_strictly(family.model_class.from_pretrained, tmp_path)
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


def test_a_model_may_be_spread_over_memory_and_disk(family, tmp_path):
    """device_map splits between layers, and what does not fit is read from disk in passing."""
    from accelerate import infer_auto_device_map

    model = family.build()
    model.save_pretrained(tmp_path / "model")
    memory = {"cpu": model.get_memory_footprint() * 2 // 3, "disk": 10**9}
    split = infer_auto_device_map(model, memory, no_split_module_classes=model._no_split_modules)
    assert {"cpu", "disk"} == set(split.values())
    loaded = family.model_class.from_pretrained(
        tmp_path / "model", device_map=split, offload_folder=tmp_path / "off"
    )
    inputs = ids_for(family)
    torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits)
    assert (
        family.model_class.from_pretrained(tmp_path / "model", device_map="auto").device.type
        == "cpu"
    )


def test_the_layers_that_must_not_be_split_are_all_the_layers_there_are(family):
    model = family.build()
    stacks = [model.get_decoder()] + ([model.get_encoder()] if family is SEQ2SEQ else [])
    assert {type(layer).__name__ for stack in stacks for layer in stack.layers} == set(
        model._no_split_modules
    )


@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("size", [120, 60], ids=["grown", "shrunk"])
def test_a_resized_vocabulary_agrees_with_itself(family, tmp_path, tie, size):
    model = family.build(tie_word_embeddings=tie, lm_head_bias=True)
    kept = model.get_input_embeddings().weight[:60].clone()
    model.resize_token_embeddings(size)
    check_vocabulary(family, model, size, tie)
    assert torch.equal(model.get_input_embeddings().weight[:60], kept)
    model.save_pretrained(tmp_path)
    check_vocabulary(family, load_strictly(family.model_class.from_pretrained, tmp_path), size, tie)


def check_vocabulary(family, model, size, tie):
    assert model.config.vocab_size == size
    assert model.get_input_embeddings().num_embeddings == size
    assert (model.lm_head.out_features, *model.lm_head.weight.shape) == (size, size, 36)
    assert model.lm_head.bias.shape == (size,)
    table = model.get_decoder().embed_tokens
    assert (model.lm_head.weight.data_ptr() == table.weight.data_ptr()) == tie
    ids = torch.tensor([[3, 4, 5]])
    target = family.target(ids)
    assert model(ids, **target).logits.shape[-1] == size


@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    "source_vocab_size", [None, 97], ids=["one vocabulary", "two vocabularies"]
)
def test_separate_tables_are_resized_with_the_vocabulary_they_belong_to(tie, source_vocab_size):
    model = SEQ2SEQ.build(
        tie_word_embeddings=tie,
        share_encoder_decoder_embeddings=False,
        source_vocab_size=source_vocab_size,
    )
    model.resize_token_embeddings(110)
    assert model.get_encoder().embed_tokens.num_embeddings == (
        110 if source_vocab_size is None else 97
    )
    assert model.get_decoder().embed_tokens.num_embeddings == model.lm_head.out_features == 110
    assert (
        model.lm_head.weight.data_ptr() == model.get_decoder().embed_tokens.weight.data_ptr()
    ) == tie
    ids = torch.tensor([[3, 4, 5]])
    assert model(ids, decoder_input_ids=ids).logits.shape[-1] == 110


def test_a_source_vocabulary_that_is_the_shared_one_grows_with_it(tmp_path):
    model = SEQ2SEQ.build(source_vocab_size=101, lm_head_bias=True)
    model.resize_token_embeddings(110)
    model.save_pretrained(tmp_path)
    check_vocabulary(SEQ2SEQ, SEQ2SEQ.model_class.from_pretrained(tmp_path), 110, tie=True)


def test_a_vocabulary_may_be_padded_to_a_multiple(family):
    model = family.build()
    model.resize_token_embeddings(pad_to_multiple_of=64)
    check_vocabulary_sizes = (model.config.vocab_size, model.lm_head.out_features)
    assert check_vocabulary_sizes == (128, 128)


def test_task_heads_load_from_a_language_model_and_keep_its_body(tmp_path):
    import hf_tformer

    DECODER.build().save_pretrained(tmp_path)
    body = DECODER.model_class.from_pretrained(tmp_path).model.state_dict()
    for task in ("SequenceClassification", "TokenClassification", "QuestionAnswering"):
        head = getattr(hf_tformer, f"TformerDecoderFor{task}").from_pretrained(
            tmp_path, num_labels=3
        )
        assert all(
            torch.equal(head.model.state_dict()[name], value) for name, value in body.items()
        )
        randomise(head).save_pretrained(tmp_path / task)
        again = load_strictly(type(head).from_pretrained, tmp_path / task)
        ids = torch.randint(3, 97, (2, 7))
        for ours, theirs in zip(head.eval()(ids).to_tuple(), again(ids).to_tuple(), strict=True):
            if isinstance(ours, torch.Tensor):
                assert torch.equal(ours, theirs)


def test_a_new_model_starts_as_its_initializer_says(family):
    normal = family.model_class(
        family.config(initializer="normal", initializer_range=0.05, hidden_size=60)
    )
    glorot = family.model_class(family.config(initializer="xavier_uniform", hidden_size=60))
    up = [model.get_decoder().layers[0].mlp.up_proj.weight for model in (normal, glorot)]
    assert up[0].std().item() == pytest.approx(0.05, rel=0.1)
    bound = (6 / (60 + 44)) ** 0.5
    assert 0.95 * bound < up[1].abs().max().item() <= bound
