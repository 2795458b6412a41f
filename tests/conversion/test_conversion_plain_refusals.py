"""What a plain checkpoint does not say, or says wrongly, is refused; nothing in it runs."""

import json

import pytest
import torch
from safetensors.torch import save_file

from conversion import ConversionError, export_checkpoint, import_checkpoint
from support.converting import assert_refused
from support.damage import Trap
from support.plain import CASES, nanogpt


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("aiayn proj embs prj", {"scale_emb_or_prj": "both"}, ["scale_emb_or_prj", "'both'"]),
        ("aiayn proj - prj", {"embs_share_weight": True}, ["embs_share_weight", "97", "101"]),
        ("aiayn proj embs prj", {"trg_pad_idx": 0}, ["trg_pad_idx is 0", "1"]),
        (
            "aiayn - - prj",
            {"proj_share_weight": True},
            ["--set proj_share_weight=false"],
        ),
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
    with pytest.raises(ConversionError, match=r"nanogpt is read only.*both ways"):
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
