"""TransformerLens' hooks sit where it says in our models, which compute all by themselves."""

import pytest
import torch

from support.families import DECODER, ENCODER, SEQ2SEQ

pytestmark = pytest.mark.study

IDS = torch.tensor([[3, 4, 5, 6, 7]])
# Layers of every kind that a hook point depends on.
KINDS = {
    "pre": (DECODER, {}),
    "post": (DECODER, {"norm_position": "post"}),
    "inside": (DECODER, {"norm_position": "inside"}),
    "both": (DECODER, {"norm_position": "both"}),
    "side by side": (DECODER, {"parallel_residual": "own"}),
    "after one norm": (DECODER, {"parallel_residual": "shared"}),
    "plain": (
        DECODER,
        {"mlp_type": "plain", "norm_type": "layernorm", "tie_word_embeddings": False},
    ),
    "distances": (DECODER, {"position_embedding_type": "none", "score_bias": "alibi"}),
    "window": (DECODER, {"sliding_window": 2}),
    "encoder": (ENCODER, {}),
    "encoder-decoder": (SEQ2SEQ, {}),
    "encoder-decoder, pre": (SEQ2SEQ, {"norm_position": "pre"}),
    "encoder-decoder, inside": (SEQ2SEQ, {"norm_position": "inside"}),
}
by_kind = pytest.mark.parametrize(("family", "fields"), KINDS.values(), ids=KINDS)


def bridge_of(model, **options):
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    return build_bridge_from_module(model, type(model).__name__, hf_config=model.config, **options)


def plain(family, model, **options):
    with torch.no_grad():
        return model(IDS, **family.target(IDS), **options)


def run(family, bridge, **hooks):
    """Logits and what the hook points saw."""
    with torch.no_grad(), bridge.hooks(fwd_hooks=list(hooks.items())):
        return bridge.run_with_cache(IDS, **family.target(IDS))


def blocks_of(family):
    return "decoder_blocks" if family is SEQ2SEQ else "blocks"


@by_kind
def test_the_bridge_computes_what_the_model_computes(family, fields, opened):
    expected = plain(family, opened(family, "eager", **fields), output_attentions=True)
    logits, cache = run(family, bridge_of(opened(family, **fields)))
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-4)
    weights = expected.get("decoder_attentions", expected.get("attentions"))
    for layer, pattern in enumerate(weights):
        torch.testing.assert_close(cache[f"{blocks_of(family)}.{layer}.attn.hook_pattern"], pattern)
    assert not [name for name in cache if "attn_scores" in name]  # which would be the pattern


@by_kind
def test_hooks_show_the_residual_stream(family, fields, opened):
    bridge = bridge_of(opened(family, **fields))
    _, cache = run(family, bridge)
    shown = {
        name: cache[f"{blocks_of(family)}.1.hook_{name}"]
        for name in ("resid_pre", "attn_out", "mlp_out", "resid_post")
    }
    attended = shown["resid_pre"] + shown["attn_out"]
    if "parallel_residual" in fields:
        torch.testing.assert_close(shown["resid_post"], attended + shown["mlp_out"])
        return
    middle = cache[f"{blocks_of(family)}.1.hook_resid_mid"]
    if bridge.original_model.config.norm_position == "post":
        norm = bridge.get_submodule(f"{blocks_of(family)}.1.ln1").original_component
        torch.testing.assert_close(middle, norm(attended))
        return
    torch.testing.assert_close(middle, attended)
    if family is not SEQ2SEQ:  # there, the source is read in between
        torch.testing.assert_close(shown["resid_post"], middle + shown["mlp_out"])


@by_kind
@pytest.mark.parametrize("hook", ["pattern", "z"])
def test_a_head_that_is_patched_changes_the_logits(hook, family, fields, opened):
    bridge = bridge_of(opened(family, **fields))
    logits, _ = run(family, bridge)

    def without_head(values, hook):
        values = values.clone()
        values.select(1 if hook.name.endswith("pattern") else 2, 4).zero_()
        return values

    names = {"pattern": "hook_pattern", "z": "hook_z"}
    changed, _ = run(family, bridge, **{f"{blocks_of(family)}.0.attn.{names[hook]}": without_head})
    assert (changed - logits).abs().max() > 1e-3
    torch.testing.assert_close(run(family, bridge)[0], logits)


def test_a_bridge_reads_and_writes_texts(opened, folder):
    from transformers import AutoTokenizer

    model, tokenizer = opened(DECODER), AutoTokenizer.from_pretrained(folder(DECODER))
    ids = tokenizer("the cat", return_tensors="pt").input_ids
    expected = model.generate(ids, max_new_tokens=5, do_sample=False)
    bridge = bridge_of(model, tokenizer=tokenizer)
    assert torch.equal(bridge.to_tokens("the cat", prepend_bos=False), ids)
    written = bridge.generate(ids, max_new_tokens=5, do_sample=False, verbose=False)
    assert torch.equal(written, expected)


def test_a_folder_with_its_code_is_bridged_too(folder):
    model = DECODER.auto.from_pretrained(folder(DECODER), trust_remote_code=True)
    expected = plain(DECODER, model)
    logits, _ = run(DECODER, bridge_of(model))
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-4)
