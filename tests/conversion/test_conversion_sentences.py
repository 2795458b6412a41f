"""What stands around a model of sentence-transformers comes along as it is, out and back."""

import json

import pytest
from numpy.testing import assert_allclose
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.nn import Identity
from transformers import PreTrainedTokenizerFast

from conversion import export_checkpoint, import_checkpoint
from support.converting import assert_refused
from support.converting_encoders import read_all, save_theirs

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
    {
        "idx": 3,
        "name": "3",
        "path": "3_Normalize",
        "type": "sentence_transformers.models.Normalize",
    },
]
AROUND = {
    "sentence_bert_config.json": b'{"max_seq_length": 9, "do_lower_case": false}',
    "config_sentence_transformers.json": b'{"prompts": {"query": "to be "}}',
    "1_Pooling/config.json": b'{"word_embedding_dimension": 30, "pooling_mode_mean_tokens": true}',
    "2_Dense/config.json": b'{"in_features": 30, "out_features": 7}',
    "2_Dense/model.safetensors": b"weights of its own, whatever they are",
    "2_Dense/deep/vocabulary.txt": b"to\nbe\n",
}


@pytest.fixture
def sentences(tmp_path):
    save_theirs("mpnet Model", tmp_path / "theirs")
    name_modules(tmp_path / "theirs", MODULES)
    for name, content in AROUND.items():
        (tmp_path / "theirs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "theirs" / name).write_bytes(content)
    return tmp_path / "theirs"


def name_modules(folder, modules):
    (folder / "modules.json").write_text(json.dumps(modules))


def test_pooling_dense_layers_and_prompts_come_along_both_ways(tmp_path, sentences):
    (sentences / "unrelated").mkdir()
    (sentences / "unrelated/notes.txt").write_text("not named by modules.json")
    import_checkpoint(sentences, tmp_path / "ours")
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="mpnet")
    for folder in (tmp_path / "ours", tmp_path / "back"):
        for name in ("modules.json", *AROUND):
            assert (folder / name).read_bytes() == (sentences / name).read_bytes()
        assert not (folder / "unrelated").exists()
    assert "embed_tokens.weight" in read_all(tmp_path / "ours")


@pytest.mark.parametrize("path", ["../secrets", "/etc", "1_Pooling/../../secrets"])
def test_a_module_outside_of_its_folder_is_refused(path, tmp_path, sentences):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("secret")
    name_modules(sentences, [*MODULES, {**MODULES[1], "path": path}])
    assert_refused(tmp_path, "modules.json", path, "outside")


@pytest.mark.parametrize("name", ["1_Pooling/config.json", "sentence_bert_config.json", "2_Dense"])
def test_a_link_that_leads_out_of_the_folder_is_refused(name, tmp_path, sentences):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("secret")
    link = sentences / name
    target = tmp_path / "secrets" if link.is_dir() else tmp_path / "secrets/key"
    link.rename(tmp_path / "away")
    link.symlink_to(target)
    assert_refused(tmp_path, name, "leads out of its folder")


def test_a_snapshot_in_the_cache_of_the_hub_is_read(tmp_path, sentences):
    """There every file is a link to one beside the snapshots."""
    repository = tmp_path / "models--someone--sentences"
    snapshot = repository / "snapshots/abc"
    (repository / "blobs").mkdir(parents=True)
    for number, path in enumerate(x for x in sentences.rglob("*") if x.is_file()):
        link = snapshot / path.relative_to(sentences)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob = path.rename(repository / "blobs" / str(number))
        link.symlink_to(blob)
    import_checkpoint(snapshot, tmp_path / "ours", verify=False)
    assert (tmp_path / "ours/2_Dense/model.safetensors").read_bytes().startswith(b"weights")


@pytest.mark.parametrize("modules", [{"path": ""}, [{"idx": 0}], [3], "[", [{"path": 3}], 7])
def test_modules_that_cannot_be_read_are_refused(modules, tmp_path, sentences):
    name_modules(sentences, modules)
    if modules == "[":
        (sentences / "modules.json").write_text("[")
    assert_refused(tmp_path, "modules.json", "list of modules")


@pytest.mark.slow
def test_embeddinggemma_makes_the_same_vectors_of_texts(tmp_path):
    sentences = pytest.importorskip("sentence_transformers")
    save_theirs("embeddinggemma Model", tmp_path / "body")
    words = {word: index for index, word in enumerate(["<pad>", "<unk>", *"abcdefgh"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(tmp_path / "body")
    parts = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    model = sentences.SentenceTransformer(
        modules=[
            parts.Transformer(str(tmp_path / "body")),
            parts.Pooling(30, pooling_mode="mean"),
            parts.Dense(30, 41, bias=False, activation_function=Identity()),
            parts.Dense(41, 7, bias=False, activation_function=Identity()),
            parts.Normalize(),
        ],
        prompts={"query": "a c ", "document": "d "},
        device="cpu",
    )
    model.save(str(tmp_path / "theirs"))
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    ours = sentences.SentenceTransformer(
        str(tmp_path / "ours"), trust_remote_code=True, device="cpu"
    )
    texts = ["a b c d e f g h h g", "b", "e f e"]
    for prompt in ("query", "document"):
        expected = model.encode(texts, prompt_name=prompt)
        assert expected.shape == (3, 7)
        assert_allclose(ours.encode(texts, prompt_name=prompt), expected, rtol=1e-4, atol=1e-5)
