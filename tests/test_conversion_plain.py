"""Checkpoints of plain PyTorch programs become ours, with the logits that they had there."""

import dataclasses
import json

import pytest
import torch
from converting import CLASSES, assert_refused
from plain import CASES, nanogpt, save_nanogpt
from safetensors.torch import load_file, save_file
from test_conversion_refusals import Trap

from conversion import ConversionError, export_checkpoint, import_checkpoint, verify
from conversion.__main__ import main
from conversion.registry import FORMATS, detect
from conversion.transforms import Same

SEQ2SEQ = ("tutorial-seq2seq", "attention-is-all-you-need", "torch-transformer")


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def ours_of(folder):
    return CLASSES[config_of(folder)["model_type"]].from_pretrained(folder).eval()


@torch.no_grad()
def assert_same_logits(ours, theirs, form):
    """A batch padded on the right, which encoder-decoders see by the id and the others not at
    all."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([13, 8, 3])
    mask = torch.arange(13) < lengths[:, None]
    pad = ours.config.pad_token_id or 0
    ids = torch.randint(3, 97, (3, 13), generator=generator).masked_fill(~mask, pad)
    if form not in SEQ2SEQ:
        actual = ours(input_ids=ids, attention_mask=mask.long()).logits
        expected = theirs(ids)  # causal: what follows a token does not matter
    else:
        target_mask = mask.flip(0)
        target = ids.flip(0).masked_fill(~target_mask, pad)
        batch = {"input_ids": ids, "attention_mask": mask.long(), "decoder_input_ids": target}
        actual = ours(**batch, decoder_attention_mask=target_mask.long()).logits
        expected, mask = theirs(ids, target), target_mask
    torch.testing.assert_close(actual[mask], expected[mask], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_an_import_is_recognised_and_has_the_same_logits(name, tmp_path):
    case = CASES[name]
    theirs, src = case.save_to(tmp_path / "theirs")
    assert detect(src).name == case.form
    done = import_checkpoint(src, tmp_path / "ours", settings=case.settings)
    assert done.difference < 1e-4
    assert_same_logits(ours_of(tmp_path / "ours"), theirs, case.form)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("nanogpt", "gpt2"),
        ("book gpt", "gpt2"),
        ("meta two ranks", "llama"),
        ("book llama scaled", "llama"),
        ("tutorial seq2seq", "torch-transformer"),
    ],
)
def test_the_models_of_transformers_and_torch_agree_with_our_references(name, to, tmp_path):
    """The same weights through code that was written elsewhere."""
    case = CASES[name]
    _, src = case.save_to(tmp_path / "theirs")
    import_checkpoint(src, tmp_path / "ours", settings=case.settings)
    export_checkpoint(tmp_path / "ours", tmp_path / "elsewhere", to=to)
    assert verify(src, tmp_path / "elsewhere", settings=case.settings) < 1e-4


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("torch")])
def test_torch_transformer_comes_back_as_the_same_bits(name, tmp_path):
    case = CASES[name]
    theirs, src = case.save_to(tmp_path / "theirs")
    import_checkpoint(src, tmp_path / "ours", settings=case.settings)
    export_checkpoint(tmp_path / "ours", tmp_path / "back", to="torch-transformer")
    back = load_file(tmp_path / "back/model.safetensors")
    assert back.keys() == theirs.state_dict().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in theirs.state_dict().items())
    # What no shape says is written beside the weights: nothing has to be set.
    again = import_checkpoint(tmp_path / "back", tmp_path / "again")
    assert again.assumed == {}
    assert config_of(tmp_path / "again") == config_of(tmp_path / "ours")


def test_the_order_of_rotary_pairs_matters_to_the_proof(tmp_path, monkeypatch):
    _, src = CASES["meta"].save_to(tmp_path / "theirs")
    form = FORMATS["meta-llama"]
    rules = tuple(dataclasses.replace(rule, transform=Same()) for rule in form.rules)
    monkeypatch.setitem(FORMATS, form.name, dataclasses.replace(form, rules=rules))
    assert_refused(tmp_path, "the logits differ by")
    assert src.is_dir()


@pytest.mark.parametrize("name", ["tutorial seq2seq", "aiayn proj embs prj"])
def test_a_table_of_other_sinusoids_does_not_pass_the_proof(name, tmp_path):
    case = CASES[name]
    theirs = case.build()
    for table in theirs.buffers():
        table.mul_(0.9)
    src = case.save(theirs, case.config, tmp_path)
    with pytest.raises(ConversionError, match="the logits differ by"):
        import_checkpoint(src, tmp_path / "ours", settings=case.settings)


def test_a_wrong_setting_that_fits_is_reported_by_nobody_but_the_original(tmp_path):
    """Both sides of the proof believe what is set; the page on conversion says so."""
    case = CASES["book gpt"]
    theirs, src = case.save_to(tmp_path / "theirs")
    import_checkpoint(src, tmp_path / "ours", settings={"n_heads": 3})
    with pytest.raises(AssertionError):
        assert_same_logits(ours_of(tmp_path / "ours"), theirs, case.form)


def test_safetensors_which_hold_a_tied_table_once_are_read_too(tmp_path):
    theirs = nanogpt(True).build()
    state = theirs.state_dict()
    state.pop("lm_head.weight")
    save_file(state, tmp_path / "nano.safetensors")
    import_checkpoint(tmp_path / "nano.safetensors", tmp_path / "ours", settings={"n_head": 3})
    assert_same_logits(ours_of(tmp_path / "ours"), theirs, "nanogpt")


def test_rounding_is_proven_and_tables_are_not_rounded(tmp_path):
    _, src = CASES["aiayn proj embs prj"].save_to(tmp_path / "theirs")
    done = import_checkpoint(src, tmp_path / "ours", dtype="bfloat16")
    assert done.difference < 1e-4
    tensors = load_file(tmp_path / "ours/model.safetensors").values()
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}


def test_the_dtype_of_the_file_is_kept(tmp_path):
    theirs = nanogpt(False).build().to(torch.bfloat16)
    src = save_nanogpt(theirs, {**nanogpt(False).config}, tmp_path)
    import_checkpoint(src, tmp_path / "ours")
    tensors = load_file(tmp_path / "ours/model.safetensors").values()
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}


# What a file does not say


def test_what_is_not_said_is_asked_for_by_name(tmp_path):
    _, src = CASES["book llama"].save_to(tmp_path / "theirs")
    with pytest.raises(ConversionError, match=r"n_heads.*--set n_heads=32 .*--set rope_base="):
        import_checkpoint(src, tmp_path / "ours")
    for settings, words in (
        ({"n_heads": 5}, "n_heads is 5"),
        ({"n_heads": 0}, "n_heads is 0"),
        ({"n_heads": "six"}, "n_heads is 'six'"),
        ({"heads": 6}, "heads cannot be set.*n_heads"),
        ({"n_heads": 6, "rope_freq": {"factor": 8.0}}, "rope_freq is .*low_freq_factor"),
    ):
        settings = {"rope_base": 50.0, "rope_freq": None, **settings}
        with pytest.raises(ConversionError, match=words):
            import_checkpoint(src, tmp_path / "ours", settings=settings)
    assert not (tmp_path / "ours").exists()


def test_what_was_assumed_is_reported(tmp_path, capsys):
    _, src = CASES["torch post-norm"].save_to(tmp_path / "theirs")
    arguments = ["import", str(src), str(tmp_path / "ours"), "--set", "nhead=3"]
    assert main([*arguments, "--set", "pad_token_id=1"]) == 0
    assert "assumed norm_first=False; assumed activation=relu" in capsys.readouterr().out
    assert main(["verify", str(src), str(tmp_path / "ours"), "--set", "nhead=3"]) == 1
    assert "pad_token_id" in capsys.readouterr().err
    settings = ["--set", "nhead=3", "--set", "pad_token_id=1"]
    assert main(["verify", str(src), str(tmp_path / "ours"), *settings]) == 0


@pytest.mark.parametrize("word", ["nhead", "=3", "nhead="])
def test_a_setting_without_a_value_is_refused(word, tmp_path, capsys):
    _, src = CASES["torch post-norm"].save_to(tmp_path / "theirs")
    assert main(["import", str(src), str(tmp_path / "ours"), "--set", word]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_scaled_rotation_asks_by_how_much(tmp_path):
    case = CASES["meta scaled"]
    _, src = case.save_to(tmp_path / "theirs")
    params = json.loads((src / "params.json").read_text())
    del params["rope_scaling_factor"]  # as Llama 3.1 and 3.2 are shipped
    (src / "params.json").write_text(json.dumps(params))
    assert_refused(tmp_path, "rope_scaling_factor=8")
    import_checkpoint(src, tmp_path / "ours", settings={"rope_scaling_factor": 8})


# Refusals


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("aiayn proj embs prj", {"scale_emb_or_prj": "both"}, ["scale_emb_or_prj", "'both'"]),
        ("aiayn proj - prj", {"embs_share_weight": True}, ["embs_share_weight", "97", "101"]),
        ("aiayn proj embs prj", {"trg_pad_idx": 0}, ["trg_pad_idx is 0", "1"]),
        ("aiayn - - prj", {"proj_share_weight": True}, ["different values", "untie"]),
        ("aiayn proj embs prj", {"n_head": 4}, ["n_head is 4"]),
        ("aiayn proj embs prj", {"n_head": "3"}, ["n_head is '3'"]),
        ("nanogpt", {"n_head": 4}, ["n_head is 4"]),
    ],
)
def test_a_description_that_ours_cannot_follow_is_refused(name, fields, words, tmp_path):
    _, src = CASES[name].save_to(tmp_path)
    content = torch.load(src, weights_only=False)
    settings = content["settings"].__dict__ if "settings" in content else content["model_args"]
    settings.update(fields)
    torch.save(content, tmp_path / "theirs")
    src.unlink()
    assert_refused(tmp_path, *words)


@pytest.mark.parametrize(
    ("name", "value"), [("moe", {"num_experts": 8}), ("sliding_window", 4096), ("head_dim", 128)]
)
def test_a_field_of_params_that_is_not_of_llama_is_refused(name, value, tmp_path):
    _, src = CASES["meta"].save_to(tmp_path / "theirs")
    params = json.loads((src / "params.json").read_text())
    (src / "params.json").write_text(json.dumps({**params, name: value}))
    assert_refused(tmp_path, name, str(value))


def test_a_missing_rank_and_unequal_ranks_are_refused(tmp_path):
    _, src = CASES["meta two ranks"].save_to(tmp_path / "theirs")
    second = torch.load(src / "consolidated.01.pth")
    torch.save({**second, "norm.weight": torch.ones(36)}, src / "consolidated.01.pth")
    assert_refused(tmp_path, "different norm.weight")
    torch.save({"norm.weight": torch.ones(36)}, src / "consolidated.01.pth")
    assert_refused(tmp_path, "different tensors")
    (src / "consolidated.00.pth").unlink()
    assert_refused(tmp_path, "one is missing")
    (src / "consolidated.01.pth").unlink()
    assert_refused(tmp_path, "no consolidated")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extra.weight": torch.ones(3)}, "no rule explains: extra.weight"),
        ({"trf_blocks.1.norm1.scale": None}, "missing: trf_blocks.1.norm1.scale"),
        ({"trf_blocks.1.norm1.scale": torch.ones(35)}, r"norm1.scale has the shape \[35\]"),
        ({"pos_emb.weight": None}, "missing: pos_emb.weight"),
    ],
)
def test_every_tensor_is_accounted_for(change, words, tmp_path):
    case = CASES["book gpt"]
    state = {**case.build().state_dict(), **change}
    state = {name: tensor for name, tensor in state.items() if tensor is not None}
    torch.save(state, tmp_path / "model.pth")
    with pytest.raises(ConversionError, match=words):
        import_checkpoint(tmp_path / "model.pth", tmp_path / "ours", settings=case.settings)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pth"]


def test_an_unknown_layout_is_told_what_is_known(tmp_path):
    torch.save({"fc.weight": torch.ones(3, 3)}, tmp_path / "theirs")
    assert_refused(tmp_path, "nanogpt", "tutorial-gpt", "--rules")


def test_a_format_that_the_file_does_not_hold_is_refused(tmp_path):
    _, src = CASES["nanogpt"].save_to(tmp_path / "theirs")
    with pytest.raises(ConversionError, match="is nanogpt, not tutorial-gpt"):
        import_checkpoint(src, tmp_path / "ours", format="tutorial-gpt")


def test_what_is_read_only_is_not_exported_to(tmp_path):
    with pytest.raises(ConversionError, match=r"nanogpt is read only.*torch-transformer"):
        export_checkpoint(tmp_path, tmp_path / "ours", to="nanogpt")


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors", "model.chkpt"])
@pytest.mark.parametrize("kind", ["truncated", "text", "empty"])
def test_a_file_that_is_no_checkpoint_is_refused(name, kind, tmp_path):
    path = tmp_path / name
    state = nanogpt(True).build().state_dict()
    if name.endswith("safetensors"):
        save_file({key: tensor.clone() for key, tensor in state.items()}, path)
    else:
        torch.save(state, path)
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[:-2000], "text": b"import os\n" * 99, "empty": b""}[kind])
    with pytest.raises(ConversionError, match=name):
        import_checkpoint(path, tmp_path / "ours", settings={"n_head": 3})
    assert [path.name for path in tmp_path.iterdir()] == [name]


def traps(path):
    """A trap in each container, and where it lies there."""
    state = nanogpt(True).build().state_dict()
    trap = Trap(path)
    settings = CASES["aiayn proj embs prj"]
    yield "model.pth", {**state, "trap": trap}
    yield "ckpt.pt", {"model": state, "model_args": {"n_head": trap}}
    yield "optimizer.pt", {"model": state, "optimizer": trap}
    content = torch.load(settings.save_to(path.parent / "chkpt")[1], weights_only=False)
    content["settings"].n_head = trap
    yield "model.chkpt", content


def test_a_trap_in_any_container_is_refused_and_not_run(tmp_path):
    for name, content in traps(tmp_path / "sprung"):
        torch.save(content, tmp_path / name)
        with pytest.raises(ConversionError, match="could run code"):
            import_checkpoint(tmp_path / name, tmp_path / "ours")
    _, src = CASES["meta"].save_to(tmp_path / "meta")
    torch.save({"norm.weight": Trap(tmp_path / "sprung")}, src / "consolidated.00.pth")
    with pytest.raises(ConversionError, match="could run code"):
        import_checkpoint(src, tmp_path / "ours")
    assert not (tmp_path / "sprung").exists()
    assert not (tmp_path / "ours").exists()


def test_pickles_are_not_opened_by_a_torch_that_can_be_tricked(tmp_path, monkeypatch):
    _, src = CASES["nanogpt"].save_to(tmp_path / "theirs")
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(ConversionError, match=r"2\.5\.1.*upgrade to 2\.6"):
        import_checkpoint(src, tmp_path / "ours")


# A layout of the user's own

RULES = """
import torch
from torch import nn
from conversion import Rule

FAMILY = "decoder"
CONFIG = {
    "vocab_size": 101, "hidden_size": 12, "intermediate_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 1, "num_key_value_heads": 1, "position_embedding_type": "none",
    "mlp_type": "plain", "hidden_act": "relu", "tie_word_embeddings": False,
    "norm_type": "layernorm", "rms_norm_eps": 1e-5, "bos_token_id": None, "eos_token_id": None,
}
OURS = "model.layers.{i}"
RULES = (
    Rule("model.embed_tokens.weight", "table.weight"),
    *(Rule(f"{OURS}.self_attn.{x}_proj.weight", f"blocks.{{i}}.{x}.weight") for x in "qkvo"),
    *(Rule(f"{OURS}.{a}.{k}", f"blocks.{{i}}.{b}.{k}")
      for a, b in (("self_attn_norm", "n1"), ("mlp_norm", "n2")) for k in ("weight", "bias")),
    Rule(f"{OURS}.mlp.up_proj.weight", "blocks.{i}.up.weight"),
    Rule(f"{OURS}.mlp.down_proj.weight", "blocks.{i}.down.weight"),
    Rule("model.norm.weight", "last.weight"),
    Rule("model.norm.bias", "last.bias"),
    Rule("lm_head.weight", "head.weight"),
)
IGNORED = {"steps": "how long it was trained"}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(12), nn.LayerNorm(12)
        self.q, self.k, self.v, self.o = (nn.Linear(12, 12, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(12, 8, bias=False), nn.Linear(8, 12, bias=False)

    def forward(self, x):
        y = self.n1(x)
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        scores = (self.q(y) @ self.k(y).mT / 12**0.5).masked_fill(later, -torch.inf)
        x = x + self.o(scores.softmax(-1) @ self.v(y))
        return x + self.down(self.up(self.n2(x)).relu())


class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(101, 12)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last, self.head = nn.LayerNorm(12), nn.Linear(12, 101, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


def reference():
    return Mine()
"""


@pytest.fixture
def mine(tmp_path):
    """Rules and weights of a layout that nobody else has."""
    names = {}
    exec(RULES, names)
    torch.manual_seed(0)
    model = names["reference"]()
    state = {**model.state_dict(), "steps": torch.tensor(7)}
    torch.save({"state_dict": state}, tmp_path / "w.ckpt")
    (tmp_path / "mine.py").write_text(RULES)
    return model.eval(), tmp_path / "w.ckpt", tmp_path / "mine.py"


def test_rules_of_the_users_own_convert_and_are_proven(tmp_path, mine, capsys):
    model, src, rules = mine
    command = ["import", str(src), str(tmp_path / "ours"), "--rules", str(rules)]
    assert main(command) == 0
    assert "mine; largest difference of the logits" in capsys.readouterr().out
    assert_same_logits(ours_of(tmp_path / "ours"), model, "mine")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def reference", "def no_reference", "no reference.*--no-verify"),
        ("return Mine()", "return None", "reference.. of mine"),
        ("RULES = (", "RULE = (", "no RULES"),
        ('FAMILY = "decoder"', 'FAMILY = "both"', "FAMILY is 'both'.*seq2seq"),
        ("import torch\n", "import torhc\n", "does not run.*torhc"),
        ('Rule("lm_head.weight", "head.weight"),', "", "0 rules.*lm_head.weight"),
        ("IGNORED =", "NOTHING =", "no rule explains: steps"),
        ('"hidden_act": "relu"', '"hidden_act": "silu"', "the logits differ by"),
        ('"num_attention_heads": 1', '"num_attention_heads": 0', "num_attention_heads"),
    ],
)
def test_rules_that_are_wrong_are_refused(old, new, words, tmp_path, mine):
    _, src, rules = mine
    rules.write_text(rules.read_text().replace(old, new))
    with pytest.raises(ConversionError, match=words):
        import_checkpoint(src, tmp_path / "ours", rules=rules)
    assert not (tmp_path / "ours").exists()


def test_rules_without_a_reference_convert_where_no_proof_is_asked_for(tmp_path, mine):
    model, src, rules = mine
    rules.write_text(rules.read_text().replace("def reference", "def no_reference"))
    done = import_checkpoint(src, tmp_path / "ours", rules=rules, verify=False)
    assert done.difference is None
    assert_same_logits(ours_of(tmp_path / "ours"), model, "mine")


def test_the_list_says_which_way_each_format_goes(capsys):
    main(["formats"])
    lines = {line.split()[0]: line.split()[1:3] for line in capsys.readouterr().out.splitlines()}
    assert lines["torch-transformer"] == lines["llama"] == ["yes", "yes"]
    assert lines["nanogpt"] == lines["meta-llama"] == ["yes", "-"]
    assert lines.keys() >= {case.form for case in CASES.values()}
