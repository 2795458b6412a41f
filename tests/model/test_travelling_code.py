"""What travels with a checkpoint is plain, and made of public names alone."""

import ast
from pathlib import Path

import pytest

import hf_tformer
from support.families import ENCODER

MODEL = Path(hf_tformer.__file__).parent / "model"
# What transformers asks every model for under a name with an underscore: its public convention.
# `_apply` is nn.Module's: a folder opens all the same where torch calls it by another name.
CONVENTIONS = {
    "_apply",
    "_attn_implementation",
    "_can_compile_fullgraph",
    "_can_record_outputs",
    "_can_set_experts_implementation",
    "_fsdp_plan",
    "_init_weights",
    "_no_split_modules",
    "_pp_plan",
    "_skip_keys_device_placement",
    "_supports_attention_backend",
    "_supports_flash_attn",
    "_supports_flex_attn",
    "_supports_sdpa",
    "_tied_weights_keys",
    "_tp_plan",
}


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


@pytest.mark.parametrize("path", sorted(MODEL.glob("*.py")), ids=lambda path: path.stem)
def test_no_private_name_of_torch_or_transformers_is_used(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            found |= {name for name in (*parts, *(a.name for a in node.names)) if is_private(name)}
        elif isinstance(node, ast.Import):
            found |= {part for a in node.names for part in a.name.split(".") if is_private(part)}
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef) and is_private(node.name):
            found.add(node.name)
    assert found <= CONVENTIONS


@pytest.mark.parametrize("path", sorted(MODEL.glob("*.py")), ids=lambda path: path.stem)
def test_what_travels_does_not_know_what_stays_at_home(path):
    assert "fast" not in {
        part
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for part in (node.module or "").split(".")
    }


def test_an_encoder_carries_no_code_for_writing_texts(tmp_path):
    ENCODER.build().save_pretrained(tmp_path)
    assert not {"modeling_decoder.py", "stacks_seq2seq.py"} & {p.name for p in tmp_path.iterdir()}
    imported = {
        alias.name
        for path in tmp_path.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    # Cache itself is only named in the hints of the leaves that the families share.
    imported -= {"Cache"}
    assert not [name for name in imported if "GenerationMixin" in name or "Cache" in name]
