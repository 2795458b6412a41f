"""What other architectures have keeps every promise that the defaults keep."""

import itertools
import math
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from hf_tformer import fast
from hf_tformer.model.norms import NormOfAllHeads, OffsetNorm, RMSNorm
from hf_tformer.model.position_bias import bucket_of, slopes_of
from hf_tformer.model.positions import FairseqPositions, RotaryEmbedding
from hf_tformer.testing import simulated_flash
from support.families import (
    DECODER,
    ENCODER,
    FAMILIES,
    SEQ2SEQ,
    WRITERS,
    build_for_graphs,
    random_rows,
)
from support.leaves import ARCHITECTURES, LEAVES, ROPE_BY_KIND, WINDOWS, backend_of, each
from support.training import gradients

CLOSE = {"rtol": 1e-4, "atol": 3e-5}
ROWS = random_rows([9, 3, 7, 5])
TARGETS = random_rows([4, 6, 3, 8], seed=1)
GREEDY = {"max_new_tokens": 8, "do_sample": False}


def inputs_of(family, length=9):
    ids = torch.tensor(random_rows([length, length]))
    return {"input_ids": ids, **family.target(ids)}


# Answers


@each(LEAVES)
@torch.no_grad()
def test_a_leaf_changes_the_answer_and_its_absence_is_the_default(family, leaf):
    model, plain = family.build("eager", **leaf), family.build("eager")
    logits, expected = (m(**inputs_of(family)).logits for m in (model, plain))
    # Drawn around its first value, a weight that is added to one gives the gain of the other norm.
    is_same = leaf == {"norm_type": "rmsnorm_offset"} and plain.config.norm_type == "rmsnorm"
    assert torch.allclose(logits, expected, **CLOSE) == is_same


REFUSED = {"sdpa": "attn_logit_softcapping", "flash_attention_2": "score_bias"}


@each(LEAVES)
@pytest.mark.parametrize("backend", REFUSED)
@torch.no_grad()
def test_every_backend_gives_the_answer_of_eager_or_names_the_field(
    family, leaf, backend, monkeypatch
):
    simulated_flash.install(monkeypatch)
    model = family.build(backend, **leaf)
    if REFUSED[backend] in leaf:
        with pytest.raises(ValueError, match=rf"{REFUSED[backend]} is .*load with attn_impl"):
            family.logits(model, ROWS)
        return
    expected = family.logits(family.build("eager", **leaf), ROWS, "right")
    torch.testing.assert_close(family.logits(model, ROWS, "left"), expected, **CLOSE)


@each(ARCHITECTURES)
@torch.no_grad()
def test_flex_attention_gives_the_answer_of_eager(family, leaf):
    expected = family.logits(family.build("eager", **leaf), ROWS, "right")
    # What it compiles to takes a minute; uncompiled it computes the same.
    with torch.compiler.set_stance("force_eager"):
        actual = family.logits(family.build("flex_attention", **leaf), ROWS, "left")
    torch.testing.assert_close(actual, expected, **CLOSE)


@each(LEAVES)
@torch.no_grad()
def test_what_is_fast_and_what_is_cached_give_the_answer_of_the_modules(family, leaf):
    model = family.build(backend_of(leaf), **leaf)
    ids = torch.tensor(random_rows([12, 12]))
    with fast.disabled():
        whole = family.logits(model, ROWS, "left")
        at_once = family.at_once(model, ids) if family in WRITERS else None
    torch.testing.assert_close(family.logits(model, ROWS, "left"), whole, **CLOSE)
    if at_once is None:
        return
    for way, make in itertools.product((nullcontext, fast.disabled), CACHES):
        with way():
            steps = family.steps(model, ids, 1 + 4 * (make is None), make and make(family, model))
        torch.testing.assert_close(steps, at_once, **CLOSE)


def static_cache(family, model):
    return family.static_cache(model, 16)


CACHES = (None, static_cache)


@each(ARCHITECTURES, WRITERS)
@pytest.mark.parametrize("beams", [1, 3])
def test_every_way_to_write_gives_the_text_that_is_written_without_a_cache(family, leaf, beams):
    model = family.build(backend_of(leaf), **leaf).double()  # in which nothing is a tie
    options = {**GREEDY, "num_beams": beams}
    expected = family.generate(model, ROWS, **options, use_cache=False)
    assert family.generate(model, ROWS, **options) == expected
    assert family.generate(model, ROWS, **options, cache_implementation="static") == expected
    with fast.disabled():
        assert family.generate(model, ROWS, **options) == expected


@each(LEAVES, [DECODER])
def test_fewer_layers_as_a_draft_do_not_change_the_text(family, leaf):
    model = family.build(backend_of(leaf), **leaf)
    expected = family.generate(model, ROWS[:1], **GREEDY)
    assert family.generate(model, ROWS[:1], **GREEDY, assistant_early_exit=1) == expected
    assert family.generate(model, ROWS[:1], **GREEDY, prompt_lookup_num_tokens=3) == expected


@each(LEAVES, [DECODER, ENCODER])
@torch.no_grad()
def test_texts_packed_into_a_row_have_the_logits_that_they_have_apart(family, leaf):
    model = family.build(backend_of(leaf), **leaf)
    packed = torch.tensor([list(itertools.chain(*ROWS))])
    positions = torch.cat([torch.arange(len(row)) for row in ROWS])[None]
    options = {"use_cache": False} if family in WRITERS else {}
    logits = model(packed, position_ids=positions, **options).logits[0]
    expected = torch.cat(family.logits(model, ROWS))
    torch.testing.assert_close(logits, expected, **CLOSE)


# Files


@each(LEAVES)
@torch.no_grad()
def test_what_was_saved_in_parts_is_loaded_and_nothing_is_missing(family, leaf, tmp_path):
    model = family.build(backend_of(leaf), **leaf)
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    loaded, report = family.model_class.from_pretrained(
        tmp_path, output_loading_info=True, device_map="cpu"
    )
    assert not any(report.values()), report
    assert loaded.config._attn_implementation == backend_of(leaf)  # nobody asked for it
    for name in leaf:
        assert getattr(loaded.config, name) == getattr(model.config, name), name
    expected, found = (m.eval()(**inputs_of(family)).logits for m in (model, loaded))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_weight_beside_one_starts_as_zero_also_where_a_file_lacks_it(family, tmp_path):
    fields = {"norm_type": "rmsnorm_offset", "norm_position": "both", "qk_norm": "all"}
    fresh = family.model_class(family.config(**fields))
    offsets = {n for n, module in fresh.named_modules() if isinstance(module, OffsetNorm)}
    assert len(offsets) > 12
    family.build(**fields).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    kept = {n: x for n, x in tensors.items() if n.removesuffix(".weight") not in offsets}
    assert len(tensors) - len(kept) == len(offsets)
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = family.model_class.from_pretrained(tmp_path)
    for model in (fresh, loaded):
        assert not any(model.get_submodule(name).weight.any() for name in offsets)


# Training


@each(ARCHITECTURES)
def test_layers_computed_twice_have_the_gradients_of_those_computed_once(family, leaf):
    model = family.build(backend_of(leaf), **leaf).train()
    batch = family.training_batch(ROWS, TARGETS)
    plain = gradients(model, **batch)  # of every parameter, tables of distances included
    model.enable_input_require_grads()  # for the reentrant way, which asks for it
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        torch.testing.assert_close(gradients(model, **batch), plain)


@each(ARCHITECTURES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_and_autocast_stay_near_the_exact_loss(family, leaf, dtype):
    model = family.build(backend_of(leaf), **leaf)
    batch = family.training_batch(ROWS, TARGETS)
    exact = model(**batch).loss
    with torch.autocast("cpu", dtype):
        cast, slopes = gradients(model, **batch)
    assert all(slope.isfinite().all() for slope in slopes.values())
    with torch.no_grad():
        half = model.to(dtype)(**batch).loss.float()
    torch.testing.assert_close(torch.stack((cast, half)), exact.expand(2), rtol=0.05, atol=0.05)


def test_a_loss_of_bounded_logits_is_that_of_the_logits_that_are_returned():
    """The lean loss makes its own logits, and would not bound them."""
    model = DECODER.build(final_logit_softcapping=0.9).train()
    batch = DECODER.training_batch(ROWS)
    output = model(**batch)
    logits, labels = DECODER.shifted(output.logits, batch["labels"])
    assert output.logits.abs().max() < 0.9
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(output.loss, expected)


def test_rotations_by_kind_are_one_graph():
    """The others take minutes: below."""
    torch._dynamo.reset()
    model = DECODER.build(rope_parameters=ROPE_BY_KIND, **WINDOWS)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    inputs = inputs_of(DECODER)
    with torch.no_grad():
        logits = compiled(**inputs, use_cache=False).logits
        torch.testing.assert_close(logits, model(**inputs).logits, **CLOSE)
    torch._dynamo.reset()


@each(ARCHITECTURES)
@pytest.mark.slow
def test_a_training_step_of_any_length_is_one_graph(family, leaf):
    torch._dynamo.reset()
    model = build_for_graphs(family, backend_of(leaf), **leaf).train()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
    for length in (5, 9):
        batch = family.training_batch(random_rows([length, 3]), random_rows([length, 4]))
        loss, slopes = gradients(model, **batch)
        compiled_loss = compiled(**batch).loss
        assert len(slopes) == len(list(model.parameters()))
        torch.testing.assert_close(compiled_loss, loss, **CLOSE)
    torch._dynamo.reset()


@each(ARCHITECTURES)
@pytest.mark.slow
@torch.no_grad()
def test_an_exported_graph_takes_lengths_that_it_never_saw(family, leaf):
    model = build_for_graphs(family, backend_of(leaf), **leaf)
    without_cache = {"use_cache": False} if family in WRITERS else {}
    seen = inputs_of(family, 7)
    length = torch.export.Dim.AUTO
    shapes = {name: {0: length, 1: length} for name in seen} | dict.fromkeys(without_cache)
    program = torch.export.export(
        model, (), {**seen, **without_cache}, dynamic_shapes=shapes, strict=False
    ).module()
    inputs = {**inputs_of(family, 11), **without_cache}
    torch.testing.assert_close(program(**inputs).logits, model(**inputs).logits, **CLOSE)


# Formulas


def test_a_norm_of_all_heads_is_one_norm_over_their_numbers():
    norm = NormOfAllHeads(RMSNorm(30, 1e-6))
    nn.init.normal_(norm.norm.weight)
    heads = torch.randn(2, 5, 3, 10)
    numbers = heads.reshape(2, 5, 30)
    root = numbers.square().mean(-1, keepdim=True).add(1e-6).sqrt()
    expected = (numbers / root * norm.norm.weight).reshape(2, 5, 3, 10)
    torch.testing.assert_close(norm(heads), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_weight_beside_one_is_gemmas_norm(dtype):
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

    ours, theirs = OffsetNorm(36, 1e-6).to(dtype), GemmaRMSNorm(36, 1e-6).to(dtype)
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    states = torch.randn(2, 5, 36, dtype=dtype)
    rounding = {"rtol": 0.02 if dtype == torch.bfloat16 else 1e-5, "atol": 1e-6}
    torch.testing.assert_close(ours(states), theirs(states), **rounding)


@pytest.mark.parametrize("padding", [0, 1, 7])
def test_fairseqs_sinusoids_are_those_of_m2m100(padding):
    from transformers.models.m2m_100.modeling_m2m_100 import (
        M2M100SinusoidalPositionalEmbedding as Theirs,
    )

    table = Theirs.get_embedding(60, 12, padding)[padding + 1 : padding + 51]
    ours = FairseqPositions(12, padding)(torch.zeros(1, 50, 12), torch.arange(50)[None])
    torch.testing.assert_close(ours[0], table, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_causal", [True, False])
def test_ranges_of_distances_are_those_of_t5(is_causal):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(distance, not is_causal, 32, 128)
    assert torch.equal(bucket_of(distance, is_causal), theirs)


@pytest.mark.parametrize("heads", range(1, 41))
def test_slopes_are_those_of_bloom(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(torch.tensor(slopes_of(heads)), theirs)


def test_a_cap_bounds_scores_before_the_mask():
    bounded, plain = (
        DECODER.build("eager", attn_logit_softcapping=cap, num_hidden_layers=1)
        for cap in (0.7, None)
    )
    plain.load_state_dict(bounded.state_dict())
    ids = torch.tensor(random_rows([6]))
    weights, free = (m(ids, output_attentions=True).attentions[0] for m in (bounded, plain))
    assert not weights.masked_select(torch.ones(6, 6).triu(1).bool()).any()
    # Weights tell the scores of a query but for a constant, and tanh keeps their order.
    scores, unbounded = weights[:, :, -1].log(), free[:, :, -1].log()
    assert torch.equal(scores.argsort(), unbounded.argsort())
    spread, before = (x.amax(-1) - x.amin(-1) for x in (scores, unbounded))
    assert (spread < before).all()
    assert spread.max() <= 2 * 0.7 < before.max()


@pytest.mark.parametrize("kind", ["own", "shared"])
@torch.no_grad()
def test_side_by_side_both_branches_read_what_came_in(kind):
    model = DECODER.build(parallel_residual=kind, residual_multiplier=0.3)
    layer, states = model.model.layers[0], torch.randn(1, 4, 36)
    rotation = model.model.rotary_emb(states, torch.arange(4)[None])
    attended = layer.self_attn(layer.self_attn_norm(states), None, rotation)[0]
    norm = layer.self_attn_norm if kind == "shared" else layer.mlp_norm
    expected = states + 0.3 * attended + 0.3 * layer.mlp(norm(states))
    torch.testing.assert_close(layer(states, position_embeddings=rotation), expected, **CLOSE)
    assert ("mlp_norm.weight" in dict(layer.named_parameters())) == (kind == "own")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("place", ["inside", "both"])
@torch.no_grad()
def test_a_norm_behind_a_branch_stands_before_the_sum(family, place):
    model = family.build(norm_position=place, position_embedding_type="none")
    encoder = model.get_encoder() if family is SEQ2SEQ else model.model
    layer, states = encoder.layers[0], torch.randn(1, 4, 36)
    before = (lambda norm, x: norm(x)) if place == "both" else (lambda norm, x: x)
    attended = layer.self_attn(before(layer.self_attn_norm, states))[0]
    attended = states + layer.self_attn_output(attended)
    changed = layer.mlp_output(layer.mlp(before(layer.mlp_norm, attended)))
    torch.testing.assert_close(layer(states), attended + changed, **CLOSE)
    names = dict(model.named_parameters())
    assert any(".self_attn_norm." in name for name in names) == (place == "both")
    assert model.config.final_norm


@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=["decoder", "encoder"])
@torch.no_grad()
def test_each_kind_of_layer_turns_at_its_own_pace(family):
    seen = turns_of_layers(family, rope_parameters=ROPE_BY_KIND, **WINDOWS)
    for kind, turn in zip(WINDOWS["layer_types"], seen, strict=True):
        alone = RotaryEmbedding(DECODER.config(rope_parameters=ROPE_BY_KIND[kind]))
        expected = alone(torch.zeros(1, 9, 36), torch.arange(9)[None])
        torch.testing.assert_close(tuple(x.squeeze(0) for x in turn), tuple(x[0] for x in expected))


def test_a_layer_whose_number_is_zero_does_not_turn():
    first, second = turns_of_layers(DECODER, no_rope_layers=[0, 1])
    assert first is None
    assert second is not None


@torch.no_grad()
def turns_of_layers(family, **fields):
    """By what each layer of a model rotates a text of nine tokens."""
    model, seen = family.build(**fields), []

    def see(module, args, kwargs, output):
        seen.append(kwargs["position_embeddings"])

    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(see, with_kwargs=True)
    model(torch.tensor(random_rows([9])))
    return seen


def test_numbers_scale_embeddings_as_they_are_and_true_by_the_root_of_the_size():
    for family in FAMILIES:
        scales = [family.build(scale_embedding=x) for x in (True, False, 2, 0.5)]
        stacks = [m.get_encoder() if family is SEQ2SEQ else m.model for m in scales]
        assert [stack.embedding_scale for stack in stacks] == [math.sqrt(36), 1, 2, 0.5]


# Refusals


@pytest.mark.parametrize("backend", ["flash_attention_2", "flash_attention_3", "vllm"])
def test_what_cannot_add_a_bias_is_refused_when_the_model_is_made(family, backend, monkeypatch):
    """As it is where that backend is installed: here transformers would miss it first."""
    monkeypatch.setattr(
        PreTrainedModel, "_check_and_adjust_attn_implementation", lambda self, name, **_: name
    )
    for leaf in family.config_class.own_choices["score_bias"]:
        config = family.config(score_bias=leaf)
        config._attn_implementation = backend
        sentence = rf"score_bias is '{leaf}', which {backend} attention"
        if family is SEQ2SEQ and backend == "vllm":
            sentence = "vllm serves no encoder-decoder"
        with pytest.raises(ValueError, match=sentence):
            family.base_class(config)


def test_sdpa_is_refused_by_a_model_that_bounds_its_scores(tmp_path):
    DECODER.build("eager", attn_logit_softcapping=0.7).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="attn_implementation"):
        DECODER.model_class.from_pretrained(tmp_path, attn_implementation="sdpa")
    model = DECODER.model_class.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="attn_implementation"):
        model.set_attn_implementation("sdpa")
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    "leaf", [{"score_bias": "alibi"}, {"attn_logit_softcapping": 0.7}], ids=str
)
def test_continuous_batching_is_refused_where_it_would_forget_something(leaf):
    model = DECODER.build(backend_of(leaf), **leaf)
    (field,) = leaf
    with pytest.raises(ValueError, match=rf"{field} is .*continuous batching .*generate\(\)"):
        model.generate_batch(ROWS)


def test_vllm_finds_the_caps_by_its_names():
    config = DECODER.config(attn_logit_softcapping=50.0, final_logit_softcapping=30).to_dict()
    assert (config["attn_logit_softcapping"], config["final_logit_softcapping"]) == (50.0, 30)
