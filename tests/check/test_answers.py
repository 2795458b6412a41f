"""What `check` finds by asking a model, and that a sound model of another make is not accused."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from hf_tformer.checking import check
from hf_tformer.checking.command import main
from support.broken_models import FILE, FOREIGN, edit_json, edit_weights, prepend, write_foreign

pytestmark = pytest.mark.usefixtures("warm_python", "read_here")

HEAD = FOREIGN[FOREIGN.rindex("    def forward(") :]
BODY = FOREIGN[
    FOREIGN.index("    def forward(self, input_ids") : FOREIGN.index("\nclass ForeignForC")
]
LOSS = """
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss, logits, past_key_values)
"""
WITH_LABELS = HEAD.replace(" cache=None,", " cache=None, labels=None,").replace(
    "        return CausalLMOutputWithPast(None, logits, past_key_values)\n", LOSS[1:]
)


def verdicts(findings):
    """Name → (verdict, detail) of what was run, without what is found by reading alone."""
    return {f.name: (f.verdict, f.detail) for f in findings if f.rests_on.startswith("ran")}


def changed(tmp_path, *changes, **config):
    """Findings on the sound model with pieces of its code replaced."""
    folder, code = write_foreign(tmp_path / "folder", **config), FOREIGN
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    (folder / FILE).write_text(code, encoding="utf-8")
    return verdicts(check(folder, run_anyway=True))


def failed(found):
    return [name for name, (verdict, _) in found.items() if verdict == "fail"]


# Sound models that a signature would accuse

# It names no position_ids, so generate() passes none.
HANDED_ON = """
    def forward(self, *args, attention_mask=None, **kwargs):
        if attention_mask is not None:
            places = (attention_mask.cumsum(-1) - 1).clamp(min=0)
            kwargs["position_ids"] = places[:, -kwargs["input_ids"].shape[1] :]
        return self.answer(*args, attention_mask=attention_mask, **kwargs)

    def answer(self,"""
BY_NAME = HANDED_ON.replace("*args", "input_ids").replace('kwargs["input_ids"]', "input_ids")
NAMELESS = HANDED_ON.replace("attention_mask=None, ", "").replace(
    "        if", '        attention_mask = kwargs.pop("attention_mask", None)\n        if', 1
)
SOUND = {
    "forward hands on all arguments": [
        (HEAD, HEAD.replace("    def forward(self,", HANDED_ON[1:]))
    ],
    "forward names its ids alone": [(HEAD, HEAD.replace("    def forward(self,", BY_NAME[1:]))],
    "forward names nothing": [(HEAD, HEAD.replace("    def forward(self,", NAMELESS[1:]))],
    "a loss": [(HEAD, WITH_LABELS)],
    "dropout": [
        (
            "attended = scores.softmax(-1) @ value",
            "attended = nn.functional.dropout(scores.softmax(-1), 0.5, self.training) @ value",
        )
    ],
}


@pytest.mark.parametrize("how", SOUND)
def test_a_sound_model_of_another_make_is_not_accused(how, tmp_path):
    found = changed(tmp_path, *SOUND[how])
    assert not failed(found)
    assert found["padded rows"] == ("ok", "padded on the left and right = alone")
    assert found["cache"][0] == "ok"


ENCODER = (
    "def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None,\n"
    "                use_cache=None, cache=None, **kwargs):\n"
    "        past_key_values = cache if past_key_values is None else past_key_values\n"
)


def encoder(tmp_path, body, **options):
    """Findings on the sound model as an encoder without heads, with another start of its head."""
    auto_map = {"AutoConfig": "modeling_foreign.ForeignConfig"}
    auto_map["AutoModelForMaskedLM"] = "modeling_foreign.ForeignForCausalLM"
    return changed(tmp_path, (ENCODER, body), causal=False, auto_map=auto_map, **options)


def test_padding_that_is_read_from_the_ids_is_no_fault(tmp_path):
    body = (
        "def forward(self, input_ids):\n        attention_mask = input_ids != 0\n"
        "        past_key_values = position_ids = None\n"
    )
    found = encoder(tmp_path, body)
    assert found["padded rows"] == ("ok", "padded on the right = alone")
    assert found["masked rows"] == ("skip", "forward takes no attention_mask")
    assert not failed(found)


def test_padding_that_no_mask_hides_is_named(tmp_path):
    body = (
        "def forward(self, input_ids):\n        attention_mask = position_ids = None\n"
        "        past_key_values = None\n"
    )
    verdict, detail = encoder(tmp_path, body)["padded rows"]
    assert verdict == "fail"
    assert detail.endswith("forward takes no attention_mask, so padding counts as tokens: take one")


def test_what_forward_requires_besides_is_named_and_not_made_up(tmp_path):
    found = encoder(tmp_path, ENCODER.replace("input_ids, ", "input_ids, language, ", 1))
    assert not failed(found)
    reason = "forward requires language, which this check cannot make up"
    for name in ("forward", "padded rows", "masked rows", "training"):
        assert found[name] == ("skip", reason)


LIMIT = "        assert input_ids.shape[1] + past <= self.config.max_position_embeddings\n"
ROWS = "        rows = past + torch.arange(input_ids.shape[1], device=input_ids.device)\n"


@pytest.mark.parametrize("room", range(4, 16))
def test_no_sequence_is_longer_than_the_positions(room, tmp_path):
    found = changed(tmp_path, (ROWS, LIMIT + ROWS), max_position_embeddings=room)
    assert not failed(found)
    assert found["cache"][0] == "ok"


def test_three_positions_are_too_few_to_compare(tmp_path):
    found = changed(tmp_path, (ROWS, LIMIT + ROWS), max_position_embeddings=3)
    assert not failed(found)
    assert found["forward"][1].startswith("max_position_embeddings is 3")


# Faults that only an answer shows

DROPOUT = (
    "attended = scores.softmax(-1) @ value",
    "attended = nn.functional.dropout(scores.softmax(-1), 0.1) @ value",
)


def test_random_answers_are_one_fault_with_its_cause(tmp_path):
    found = changed(tmp_path, DROPOUT)
    assert failed(found) == ["forward"]
    assert "the same input has two answers" in found["forward"][1]
    assert "pass training=self.training to dropout" in found["forward"][1]
    assert found["second save"][0] == "ok"


def test_a_state_that_is_kept_between_calls_is_named(tmp_path):
    states = "states = self.embed_tokens(input_ids)"
    kept = "self.calls = getattr(self, 'calls', 0) + 1; "
    found = changed(tmp_path, (states, f"{kept}{states} * self.calls"))
    assert failed(found) == ["forward"]
    assert "keep nothing between two calls" in found["forward"][1]


def test_an_error_of_forward_is_said_once(tmp_path):
    found = changed(tmp_path, ("rows = past", "rows = past.cuda()"))
    assert failed(found) == ["forward"]
    assert f", at {FILE}:" in found["forward"][1]
    assert {found[name] for name in ("padded rows", "causality", "cache", "masked rows")} == {
        ("skip", "forward failed: see above")
    }


# A mask in float32 widens the scores, and the next product refuses weights in bfloat16.
WIDE = ("scores.softmax(-1) @ value", "(scores + (~mask).float()).softmax(-1) @ value")


@pytest.mark.parametrize(("dtype", "verdict"), [("bfloat16", "fail"), ("float32", "warn")])
def test_a_forward_that_fails_in_the_dtype_of_the_weights_is_named(dtype, verdict, tmp_path):
    found = changed(tmp_path, WIDE, dtype=dtype)
    assert found["forward"][0] == verdict
    assert "with dtype=bfloat16: RuntimeError" in found["forward"][1]
    assert "states.dtype" in found["forward"][1]
    assert found["padded rows"][0] == "ok"


POOLED = "        return BaseModelOutputWithPast(states, past_key_values)\n"
MEAN = (
    "        from transformers.modeling_outputs import BaseModelOutputWithPooling\n"
    "        mean = states.mean(1)\n        return BaseModelOutputWithPooling(states, mean)\n"
)


def test_a_mean_over_padding_is_named_by_its_output(tmp_path):
    auto_map = {
        "AutoConfig": f"{FILE[:-3]}.ForeignConfig",
        "AutoModel": f"{FILE[:-3]}.ForeignModel",
    }
    names = {"auto_map": auto_map, "architectures": ["ForeignModel"], "causal": False}
    folder = write_foreign(tmp_path / "folder", **names)
    (folder / FILE).write_text(FOREIGN.replace(POOLED, MEAN), encoding="utf-8")
    edit_weights(folder / "model.safetensors", without_prefix)
    verdict, detail = verdicts(check(folder))["padded rows"]
    assert verdict == "fail"
    assert " % in pooler_output: leave padding out of what is pooled" in detail


def without_prefix(tensors):
    for name in list(tensors):
        tensors[name.removeprefix("model.")] = tensors.pop(name)


def test_a_window_that_only_one_path_keeps_is_named(tmp_path):
    columns = "mask = (columns <= rows[:, None])[None, None]"
    config = {"sliding_window": 12, "layer_types": ["full_attention"] * 2}  # DynamicCache keeps all
    window = "(columns > rows[:, None] - self.config.sliding_window)"
    narrow = f"mask = ((columns <= rows[:, None]) & {window})[None, None]"
    assert not failed(changed(tmp_path, (columns, narrow), **config))
    path = tmp_path / "other"
    path.mkdir()
    wide = f"{narrow} if past == 0 else torch.ones(1, 1, 1, len(columns), dtype=torch.bool)"
    found = changed(path, (columns, wide), **config)
    assert "cache" in failed(found)


def test_several_tokens_after_a_cache_are_tried(tmp_path):
    mask = "        if attention_mask is not None:\n"
    unmasked = "        if past:\n            mask = torch.ones_like(mask)\n"
    verdict, detail = changed(tmp_path, (mask, unmasked + mask))["cache"]
    assert verdict == "fail"
    assert "several tokens after a cache" in detail


def test_a_padding_id_beyond_the_vocabulary_is_not_said_again(tmp_path):
    found = changed(tmp_path, pad_token_id=50256)
    assert not failed(found)


def test_labels_that_cannot_be_learnt_are_named(tmp_path):
    found = changed(
        tmp_path, (HEAD, WITH_LABELS.replace("(logits, labels,", "(logits[:, 1:], labels,"))
    )
    assert found["training"][0] == "fail"
    assert found["training"][1].startswith("with labels ")
    own = "nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())"
    shifted = "self.loss_function(logits, labels, self.config.vocab_size, **kwargs)"
    (tmp_path / "other").mkdir()
    found = changed(tmp_path / "other", (HEAD, WITH_LABELS.replace(shifted, own)))
    assert found["training"][1].endswith("with its own token: shift labels by one")


def test_an_embedding_that_nobody_finds_is_named(tmp_path):
    found = changed(tmp_path, ("embed_tokens", "words"))
    assert found["training"][0] == "warn"
    assert "need get_input_embeddings(): define it" in found["training"][1]


# What others ask for


PREPARE = """
    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None,
                                      **kwargs):
        given = super().prepare_inputs_for_generation(
            input_ids, past_key_values=past_key_values, attention_mask=attention_mask, **kwargs
        )
        {change}
        return given
"""
FORWARD = HEAD.splitlines(keepends=True)[0]
ASKED = {
    "generate drops the mask": (
        (
            FORWARD,
            PREPARE.format(change="given.update(attention_mask=None, position_ids=None)")[1:]
            + "\n"
            + FORWARD,
        ),
        ("generation", "fail", "return attention_mask and position_ids from prepare_inputs"),
    ),
    "generate cuts the prompt": (
        (
            FORWARD,
            PREPARE.format(change="given.update(input_ids=input_ids[:, -1:])")[1:] + "\n" + FORWARD,
        ),
        ("cache", "fail", "return all ids while the cache is empty"),
    ),
    "a tuple": (
        (
            "        return CausalLMOutputWithPast(None, logits, past_key_values)",
            "        return logits, past_key_values",
        ),
        ("forward", "fail", "return a ModelOutput, not a tuple"),
    ),
    "the last token alone": (
        (
            "self.lm_head(outputs.last_hidden_state)",
            "self.lm_head(outputs.last_hidden_state)[:, -1:]",
        ),
        ("forward", "fail", "7 tokens have logits of the shape [1, 1, 61]"),
    ),
    "a table that stays on the CPU": (
        (
            "rows = past + torch.arange(input_ids.shape[1], device=input_ids.device)",
            "rows = past + torch.arange(input_ids.shape[1])",
        ),
        ("forward", "fail", "make it with device=input_ids.device"),
    ),
    "one row's positions for all": (
        ("self.positions(position_ids)", "self.positions(position_ids[:1])"),
        ("options", "fail", "position_ids of one row are used for another"),
    ),
}
TRAINED = {
    "labels of -100 count": (
        "loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)",
        "loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), "
        "labels[:, 1:].clamp(min=0).flatten())",
        ("fail", "a label of -100 counts in the loss"),
    ),
    "labels are shifted twice": (
        "self.loss_function(logits, labels, self.config.vocab_size, **kwargs)",
        "self.loss_function(logits[:, :-1].contiguous(), labels[:, 1:], self.config.vocab_size)",
        ("fail", "the loss shifts labels twice"),
    ),
    "gradient accumulation is ignored": (
        "self.config.vocab_size, **kwargs)",
        "self.config.vocab_size)",
        ("warn", "the loss ignores num_items_in_batch"),
    ),
    "a part that is never used": (
        "bias=False)\n",
        "bias=False)\n        self.unused = nn.Parameter(torch.ones(2))\n",
        ("warn", "no gradient reaches unused, so that DDP stops"),
    ),
    "embeddings are changed in place": (
        "states = self.embed_tokens(input_ids) + self.positions(position_ids)",
        "states = self.embed_tokens(input_ids)\n        states += self.positions(position_ids)",
        ("warn", "LoRA with gradient checkpointing: RuntimeError: a leaf Variable"),
    ),
    "checkpointing is only promised": (
        '    base_model_prefix = "model"\n',
        '    base_model_prefix = "model"\n    supports_gradient_checkpointing = True\n',
        ("warn", "gradient checkpointing"),
    ),
}


@pytest.mark.parametrize("how", ASKED)
def test_what_generate_and_others_ask_for_is_named(how, tmp_path):
    change, (name, verdict, words) = ASKED[how]
    found = changed(tmp_path, change)
    assert found[name][0] == verdict
    assert words in found[name][1]


@pytest.mark.parametrize("how", TRAINED)
def test_what_trainers_stumble_over_is_named(how, tmp_path):
    old, new, (verdict, words) = TRAINED[how]
    found = changed(tmp_path, (HEAD, WITH_LABELS), (old, new))
    assert found["training"][0] == verdict
    assert words in found["training"][1]


STATE = """
from transformers import DynamicCache


class OwnCache(DynamicCache):
    seen = None
"""


def test_a_cache_whose_rows_are_not_exchanged_is_named(tmp_path):
    """A sum of all embeddings so far, which is taken off, stands beside the keys."""
    own = "past_key_values = OwnCache(config=self.config) if use_cache and not isinstance("
    start = "        outputs = self.model("
    state = f"        {own}past_key_values, OwnCache) else past_key_values\n"
    kept = (
        "        states = self.model.embed_tokens(input_ids)\n"
        "        if attention_mask is not None:\n"
        "            states = states * attention_mask[:, -states.shape[1] :, None]\n"
        "        states = states.cumsum(1)\n"
        "        if past_key_values is not None:\n"
        "            if past_key_values.seen is not None:\n"
        "                states = states + past_key_values.seen[:, None]\n"
        "            past_key_values.seen = states[:, -1]\n"
        "        logits = self.lm_head(outputs.last_hidden_state - states) * 0.1\n"
    )
    found = changed(
        tmp_path,
        ("\nclass ForeignPositions(", f"{STATE}\n\nclass ForeignPositions("),
        (start, f"{state}{start}"),
        ("        logits = self.lm_head(outputs.last_hidden_state)\n", kept),
    )
    assert found["cache"][0] == "ok"
    assert found["generation"][0] == "fail"
    assert "a search by beams beside a cache" in found["generation"][1]


# Images

IMAGES = """
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutput


class LeafConfig(PretrainedConfig):
    model_type = "leaf"

    def __init__(self, image_size=6, num_channels=3, **kwargs):
        self.image_size, self.num_channels = image_size, num_channels
        super().__init__(**kwargs)


class LeafForImageClassification(PreTrainedModel):
    config_class = LeafConfig
    main_input_name = "pixel_values"

    def __init__(self, config):
        super().__init__(config)
        self.head = nn.Linear(config.num_channels * config.image_size**2, config.num_labels)
        self.post_init()

    def forward(self, pixel_values, labels=None, **kwargs):
        logits = self.head(pixel_values.flatten(1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return ImageClassifierOutput(loss, logits)
"""
OF_IMAGES = {
    "AutoConfig": "modeling_leaf.LeafConfig",
    "AutoModelForImageClassification": "modeling_leaf.LeafForImageClassification",
}
EXTRACTOR = """
from transformers import FeatureExtractionMixin


class LeafExtractor(FeatureExtractionMixin):
    pass
"""


def write_images(folder, old="", new="", extractor=EXTRACTOR, size=6):
    folder.mkdir()
    (folder / "modeling_leaf.py").write_text(IMAGES.replace(old, new) if old else IMAGES)
    (folder / "feature_extraction_leaf.py").write_text(extractor)
    named = {"AutoFeatureExtractor": "feature_extraction_leaf.LeafExtractor"}
    edit_json(folder / "preprocessor_config.json", auto_map=named)
    known = {"model_type": "leaf", "auto_map": OF_IMAGES, "image_size": size, "num_labels": 2}
    edit_json(folder / "config.json", architectures=["LeafForImageClassification"], **known)
    tensors = {"head.weight": torch.randn(2, 108), "head.bias": torch.randn(2)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return verdicts(check(folder, run_anyway=True))


def test_a_model_of_images_is_asked_and_so_is_its_extractor(tmp_path):
    found = write_images(tmp_path / "leaf")
    assert not failed(found)
    assert found["forward"] == ("ok", "one answer to one input")
    assert found["training"] == ("ok", "labels give a loss and gradients")
    assert found["loads: AutoFeatureExtractor"] == ("ok", "LeafExtractor")
    assert "pixel_values" in found["padded rows"][1]


def test_a_forward_of_images_that_cannot_run_is_named(tmp_path):
    found = write_images(tmp_path / "leaf", "pixel_values.flatten(1)", "pixel_values.pooled")
    assert failed(found) == ["forward"]
    assert "no attribute 'pooled', at modeling_leaf.py:" in found["forward"][1]


def test_an_image_size_that_is_only_guessed_accuses_nobody(tmp_path):
    found = write_images(tmp_path / "leaf", "config.image_size**2", "36", size=7)
    assert not failed(found)
    assert "it takes no pixel_values of the shape [1, 3, 7, 7]" in found["forward"][1]


def test_an_extractor_that_cannot_be_imported_is_named(tmp_path):
    found = write_images(tmp_path / "leaf", extractor=EXTRACTOR + "\nraise ImportError('gone')\n")
    assert failed(found) == ["loads: AutoFeatureExtractor"]


# Tensors


def test_a_buffer_that_is_drawn_anew_is_to_be_saved(tmp_path):
    drawn = (
        "1.0 / 100 ** (torch.arange(0, self.size, 2).float() / self.size)",
        "torch.rand(self.size // 2)",
    )
    found = changed(tmp_path, drawn)
    verdict, detail = found["buffers"]
    assert verdict == "fail"
    assert detail.startswith("random at each loading: model.positions.inv_freq")
    assert "persistent=True" in detail


TIED = "        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)\n"


def test_a_tie_that_is_made_but_not_declared_is_written_out(tmp_path):
    found = changed(
        tmp_path,
        (TIED, TIED + "        self.lm_head.weight = self.model.embed_tokens.weight\n"),
        ('    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}\n', ""),
    )
    pair = "{'lm_head.weight': 'model.embed_tokens.weight'}"
    assert found["loading report"][1].endswith(f"declare _tied_weights_keys = {pair}")
    assert len([detail for _, detail in found.values() if "OSError" in detail]) == 0


def test_tensors_that_are_nowhere_in_the_file_are_said_once(tmp_path):
    folder = write_foreign(tmp_path / "folder")
    edit_weights(folder / "model.safetensors", lambda t: t.pop("model.layers.1.out.bias"))
    found = verdicts(check(folder))
    assert failed(found) == ["loading report"]
    assert found["loading report"][1].endswith("layers.1.out.bias: save the whole model again")


# What is read


def read(folder, name):
    return [(f.verdict, f.detail) for f in check(folder, run=False) if f.name == name]


@pytest.mark.parametrize(
    ("file", "fields", "words"),
    [
        ("config.json", {"eos_token_id": 50256, "vocab_size": 61}, "but vocab_size is 61"),
        ("generation_config.json", {"eos_token_id": [2, 62]}, "eos_token_id of generation_config"),
        ("config.json", {"eos_token_id": "</s>"}, "write the token's number"),
        ("config.json", {"id2label": {"1": "a", "2": "b"}}, "count them from 0"),
        (
            "config.json",
            {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}},
            "label2id and id2label of config.json disagree on a, b",
        ),
    ],
)
def test_values_that_no_model_can_have_are_named(file, fields, words, tmp_path):
    folder = write_foreign(tmp_path / "folder", vocab_size=61)
    assert read(folder, "configuration")[0][0] == "ok"
    edit_json(folder / file, **fields)
    ((verdict, detail),) = read(folder, "configuration")
    assert verdict == "fail"
    assert words in detail


@pytest.mark.parametrize(("key", "value"), [("tie_word_embeddings", "false"), ("hidden_size", "4")])
def test_a_value_in_quotes_is_named(key, value, tmp_path):
    folder = write_foreign(tmp_path / "folder")
    edit_json(folder / "config.json", **{key: value})
    ((verdict, detail),) = read(folder, "configuration")
    assert verdict == "warn"
    assert f"{key} of config.json is the text {value!r}" in detail


def test_a_field_that_the_configuration_does_not_keep_is_named(tmp_path):
    named = ("self.num_attention_heads = 2", "self.num_attention_heads = 2; self.rotary_base = 1e4")
    late = (
        "        super().__init__(**kwargs)\n",
        "        super().__init__(**kwargs)\n        self.rotary_base = 1e4\n",
    )
    found = changed(tmp_path, named, late, rotary_base=500.0)
    assert "rotary_base 500.0 became 10000.0" in found["loads: AutoConfig"][1]


def test_code_that_cannot_be_parsed_is_no_danger_and_nothing_is_said_of_it(tmp_path, capsys):
    folder = write_foreign(tmp_path / "folder")
    prepend(folder / FILE, "def (\n")
    assert main([str(folder), "--json"]) == 1
    found = {f["name"]: f["verdict"] for f in json.loads(capsys.readouterr().out)}
    assert found["syntax"] == "fail"
    for name in ("safety", "relative imports", "absolute imports", "tied names"):
        assert found[name] == "skip"


@pytest.mark.parametrize(
    ("template", "added", "words"),
    [
        ("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}", [], "<|im_start|>"),
        ("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}", ["<|im_start|>"], ""),
        ("{% for m in messages %}{{ m.content }}", [], "the chat template is not Jinja"),
        ("{{ raise_exception('a system message comes first') }}", [], ""),
    ],
)
def test_a_chat_template_that_cannot_be_right_is_named(template, added, words, tmp_path):
    folder = write_foreign(tmp_path / "folder")
    names = ["<pad>", "<unk>", "</s>", *map(str, range(3, 50))]
    model = models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    tokens = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), **tokens)
    tokenizer.add_tokens(added)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    (found,) = (f for f in check(folder) if f.name == "tokenizer loads")
    assert found.verdict == ("fail" if words else "ok")
    assert words in found.detail


def test_another_encoding_stays_a_danger(tmp_path, capsys):
    folder = write_foreign(tmp_path / "folder")
    prepend(folder / FILE, "# coding: utf-7\n")
    assert main([str(folder), "--json"]) == 3
    capsys.readouterr()


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    folder = write_foreign(tmp_path / "folder")
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    )
    details = [f.detail for f in check(folder, run=False) if f.name == "weights"]
    assert "`git lfs pull`" in details[0]
