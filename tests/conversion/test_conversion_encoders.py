"""Encoders convert both ways with each of their heads: equal answers, and the same bits back."""

import json

import pytest
import torch
import transformers

import hf_tformer
from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.command import main
from conversion.engine.registry import FORMATS
from support.converting import assert_refused, edit_config, edit_weights
from support.converting_encoders import read_all, save_theirs
from support.parity import randomise
from support.parity_encoder import CASES, case, padded_batch

pytestmark = pytest.mark.usefixtures("warm_python")

# What comes back as zeros, for padding alone reads it, or as a copy, for nothing does.
FROM_PADDING = "embeddings.position_embeddings.weight"
UNTIED = {"bert untied": ["cls.predictions.bias"], "roberta untied": ["lm_head.bias"]}


def ours_of(folder):
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    return getattr(hf_tformer, name).from_pretrained(folder).eval()


@pytest.mark.parametrize("name", CASES)
def test_an_encoder_answers_the_same_and_comes_back_as_the_same_bits(name, tmp_path):
    theirs = save_theirs(name, tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    ours = ours_of(tmp_path / "ours")
    assert type(ours).__name__.endswith(name.split()[-1]) or "For" not in name
    assert_same_answers(ours, theirs)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to=name.split()[0])
    assert_same_bits(name, *(read_all(tmp_path / folder) for folder in ("theirs", "back")))


@pytest.mark.parametrize("head", ["ForTokenClassification", "ForQuestionAnswering"])
def test_a_head_of_one_projection_says_so_to_whoever_builds_it_from_the_fields(head, tmp_path):
    """vLLM builds what classifies texts, and fills it with what the folder holds."""
    save_theirs(f"bert {head}", tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    config = hf_tformer.TformerEncoderConfig.from_pretrained(tmp_path / "ours")
    built = hf_tformer.TformerEncoderForSequenceClassification(config).classifier
    held = read_all(tmp_path / "ours")
    assert {name.split(".", 1)[1] for name in held if not name.startswith("model.")} == set(
        built.state_dict()
    )


def assert_same_answers(ours, theirs):
    batch = padded_batch(theirs.config, "Model")
    mask = batch["attention_mask"].bool()
    expected, actual = theirs(**batch), ours(**batch)
    for answer in expected.keys() - {"pooler_output", "past_key_values", "cache"}:
        values = (outputs[answer] for outputs in (actual, expected))
        real = [x if x.shape[:2] != mask.shape else x[mask] for x in values]
        torch.testing.assert_close(*real, rtol=1e-4, atol=1e-5)


def assert_same_bits(name, theirs, back):
    """All but what nothing reads."""
    left_out = {key for key in theirs if "pooler" in key and "Model" in name}
    assert back.keys() == theirs.keys() - left_out
    for key, tensor in back.items():
        behind_padding = key.endswith(FROM_PADDING) and name.startswith(
            ("roberta", "xlm", "camem", "mpnet", "data2vec")
        )
        if key not in UNTIED.get(name, []):
            unread = 2 if behind_padding else 0  # the id of padding is 1
            assert torch.equal(tensor[unread:], theirs[key][unread:]), key
            assert not tensor[:unread].any()


@pytest.mark.parametrize("form", ["bert", "roberta", "mpnet", "electra", "distilbert"])
def test_the_configuration_of_an_encoder_comes_back_as_it_was(form, tmp_path):
    assert_same_configuration(f"{form} ForSequenceClassification", tmp_path)


@pytest.mark.parametrize(
    "name", ["modernbert mean", "modernbert all biases", "eurobert mean", "embeddinggemma Model"]
)
def test_the_configuration_of_a_modern_encoder_comes_back_as_it_was(name, tmp_path):
    assert_same_configuration(name, tmp_path)


def assert_same_configuration(name, tmp_path):
    theirs = save_theirs(name, tmp_path / "theirs").config
    words = ["sad", "glad", "mad", "bad", "well"]
    labels = {"id2label": dict(enumerate(words)), "label2id": {w: i for i, w in enumerate(words)}}
    edit_config(tmp_path / "theirs", problem_type="regression", mask_token_id=7, **labels)
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", name.split()[0], verify=False)
    left, right = (type(theirs).from_pretrained(tmp_path / x).to_dict() for x in ("theirs", "back"))
    # The last is a word that DistilBERT does not know.
    told_anew = {"transformers_version", "dtype", *({"intermediate_size"} - right.keys())}
    assert {k: v for k, v in left.items() if k not in told_anew} == {
        k: v for k, v in right.items() if k in left and k not in told_anew
    }
    ours = hf_tformer.TformerEncoderConfig.from_pretrained(tmp_path / "ours")
    assert (ours.problem_type, ours.mask_token_id, ours.id2label[4]) == ("regression", 7, "well")


def test_an_encoder_brings_no_habits_of_generation(tmp_path):
    save_theirs("bert ForMaskedLM", tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="bert", verify=False)
    for folder in ("ours", "back"):
        assert not (tmp_path / folder / "generation_config.json").exists()
    assert (tmp_path / "ours/modeling_encoder.py").is_file()
    assert not list((tmp_path / "ours").glob("*decoder*"))


# Files as they are on the Hub


def as_of_tensorflow(tensors):
    """As in google-bert/bert-base-uncased: old names, buffers, and what pretraining needed."""
    for name in [name for name in tensors if "LayerNorm" in name]:
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        tensors[old.replace("LayerNorm.bias", "LayerNorm.beta")] = tensors.pop(name)
    tensors["cls.predictions.decoder.weight"] = tensors[
        "bert.embeddings.word_embeddings.weight"
    ].clone()
    tensors["bert.embeddings.position_ids"] = torch.arange(13)[None]
    tensors["bert.pooler.dense.weight"] = torch.ones(30, 30)
    tensors["bert.pooler.dense.bias"] = torch.ones(30)
    tensors["cls.seq_relationship.weight"] = torch.ones(2, 30)
    tensors["cls.seq_relationship.bias"] = torch.ones(2)


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertForPreTraining"])
def test_a_file_of_the_first_days_is_read_and_what_has_no_place_is_named(
    architecture, tmp_path, capsys
):
    theirs = save_theirs("bert ForMaskedLM", tmp_path / "theirs")
    edit_weights(tmp_path / "theirs", as_of_tensorflow)
    edit_config(tmp_path / "theirs", architectures=[architecture])
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    told = capsys.readouterr().out
    assert "omitted: bert.pooler.dense.bias, bert.pooler.dense.weight: the pooler" in told
    assert "omitted: cls.seq_relationship.bias, cls.seq_relationship.weight: the guess" in told
    assert_same_answers(ours_of(tmp_path / "ours"), theirs)
    assert "Omitted: bert.pooler" in (tmp_path / "ours/README.md").read_text()


def test_the_body_of_a_discriminator_comes_without_its_guess(tmp_path):
    """As google/electra-base-discriminator is published."""
    one = case("electra", "Model")
    config = one.build_one(one.their_classes, one.theirs).config
    theirs = randomise(transformers.ElectraForPreTraining(config)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert done.difference < 1e-4
    assert done.compared == "hidden states"
    assert "discriminator_predictions.dense.bias" in done.left_out[0]
    assert_same_answers(ours_of(tmp_path / "ours"), theirs.electra)


def test_a_body_is_read_beside_the_names_of_a_head(tmp_path):
    theirs = save_theirs("roberta Model", tmp_path / "theirs")

    def rename(tensors):
        for name in list(tensors):
            tensors[f"roberta.{name}"] = tensors.pop(name)

    edit_weights(tmp_path / "theirs", rename)
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    assert_same_answers(ours_of(tmp_path / "ours"), theirs)


def test_rounding_an_encoder_is_proven_too(tmp_path):
    save_theirs("mpnet Model", tmp_path / "theirs")
    done = import_checkpoint(tmp_path / "theirs", tmp_path / "ours", dtype="bfloat16")
    assert done.difference < 1e-4
    assert {tensor.dtype for tensor in read_all(tmp_path / "ours").values()} == {torch.bfloat16}


def test_two_folders_of_an_encoder_are_compared_by_command(tmp_path, capsys):
    save_theirs("bert ForQuestionAnswering", tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours", verify=False)
    assert main(["verify", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    assert "largest difference" in capsys.readouterr().out
    edit_weights(tmp_path / "ours", lambda tensors: tensors["qa_outputs.out_proj.bias"].add_(1))
    with pytest.raises(ConversionError, match="differ by"):
        verify(tmp_path / "theirs", tmp_path / "ours")


# What is refused


@pytest.fixture
def bert(tmp_path):
    save_theirs("bert ForSequenceClassification", tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.mark.parametrize("architectures", [None, [], ["BertForMultipleChoice"], "BertModel", [3]])
def test_a_folder_that_names_no_head_that_is_known_is_refused(architectures, tmp_path, bert):
    edit_config(bert, architectures=architectures)
    assert_refused(tmp_path, "architectures", "BertForMaskedLM, BertForSequenceClassification")


@pytest.mark.parametrize(
    ("name", "fields"),
    {
        "bert ForMaskedLM": {
            "position_embedding_type": "relative_key",
            "is_decoder": True,
            "add_cross_attention": True,
            "vocab_size": 0,
        },
        "roberta Model": {"pad_token_id": None, "position_embedding_type": "relative_key_query"},
        "mpnet Model": {"relative_attention_num_buckets": 16, "pad_token_id": 0},
        "electra Model": {"embedding_size": 16},
        "eurobert ForSequenceClassification": {"classifier_pooling": "late"},
        "bert ForQuestionAnswering": {"id2label": {"0": "a", "1": "b", "2": "c"}},
        "modernbert Model": {"local_attention": -2},
        "embeddinggemma Model": {"architectures": ["Gemma3ForCausalLM"], "sliding_window": -2},
    }.items(),
)
def test_what_an_encoder_cannot_express_is_refused_by_the_name_of_the_field(name, fields, tmp_path):
    save_theirs(name, tmp_path / "theirs")
    path = tmp_path / "theirs/config.json"
    before = path.read_text()
    for field, value in fields.items():
        edit_config(tmp_path / "theirs", **{field: value})
        said = {"id2label": "num_labels", "local_attention": "sliding_window"}.get(field, field)
        assert_refused(tmp_path, said)
        path.write_text(before)


SIZES = {"vocab_size": 23, "hidden_size": 12, "intermediate_size": 10, "num_attention_heads": 2}
SIZES |= {"num_hidden_layers": 3, "max_position_embeddings": 16, "pad_token_id": 1}


def save_ours(folder, head="Model", **fields):
    model_class = getattr(hf_tformer, f"TformerEncoder{head}")
    config = hf_tformer.TformerEncoderConfig(**{**SIZES, **fields})
    randomise(model_class(config)).save_pretrained(folder)


@pytest.mark.parametrize("form", [form.name for form in FORMATS.values() if hasattr(form, "heads")])
def test_an_export_refuses_what_the_other_side_cannot_say_by_the_name_of_the_field(form, tmp_path):
    save_ours(tmp_path / "ours", qk_norm=True)
    with pytest.raises(ConversionError) as caught:
        export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to=form)
    words = str(caught.value).split()
    assert words[0] in hf_tformer.TformerEncoderConfig.__annotations__, caught.value
    assert not (tmp_path / "theirs").exists()


def test_a_head_that_a_format_does_not_have_is_refused(tmp_path):
    save_ours(tmp_path / "ours", "ForQuestionAnswering", sliding_window=None)
    with pytest.raises(ConversionError, match=r"QuestionAnswering.*TformerEncoderForMaskedLM"):
        export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to="eurobert")
    with pytest.raises(ConversionError, match=r"tformer_encoder.*bert, .*electra, .*roberta, "):
        export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to="llama")


def test_what_another_head_would_read_does_not_stand_in_the_way(tmp_path):
    """This configuration classifies as ModernBERT does, but the folder holds no classifier."""
    eurobert = {"sliding_window": None, "norm_type": "rmsnorm", "mask_token_id": 3}
    save_ours(tmp_path / "ours", "Model", **eurobert)
    done = export_checkpoint(tmp_path / "ours", tmp_path / "theirs", to="eurobert")
    assert done.difference < 1e-4
    save_ours(tmp_path / "classifier", "ForSequenceClassification", **eurobert)
    with pytest.raises(ConversionError, match="classifier_norm is True"):
        export_checkpoint(tmp_path / "classifier", tmp_path / "refused", to="eurobert")
