"""Attention against a reference written from the paper, with loops over everything."""

import inspect
from types import SimpleNamespace

import pytest
import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    PreTrainedModel,
)
from transformers.masking_utils import eager_mask
from transformers.utils.output_capturing import OutputRecorder

from hf_tformer.model.attention import SelfAttention, eager_attention
from hf_tformer.model.cross_attention import CrossAttention, PackedKeys
from hf_tformer.testing import simulated_flash
from support.families import BACKENDS, DECODER, SEQ2SEQ, random_rows
from support.parity import randomise

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def reference_attention(query, key, value, visible, scale):
    """softmax(q kᵀ · scale) v for one head: lists of vectors; visible[i][j]: i sees j."""
    output, weights = [], []
    for i, q in enumerate(query):
        scores = [
            q.dot(k) * scale if visible[i][j] else q.new_tensor(float("-inf"))
            for j, k in enumerate(key)
        ]
        row = torch.stack(scores).softmax(0)
        weights.append(row)
        output.append(sum(w * v for w, v in zip(row, value, strict=True)))
    return torch.stack(output), torch.stack(weights)


def settings(**overrides):
    """Exactly what an attention layer says it reads: a layer needs no configuration class."""
    fields = {
        "hidden_size": 36,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 10,
        "attention_bias": True,
        "attention_output_bias": True,
        "attention_scale": None,
        "attention_dropout": 0.0,
        "qk_norm": False,
        "norm_type": "rmsnorm",
        "rms_norm_eps": 1e-6,
        "layer_norm_eps": 1e-5,
        "_attn_implementation": "eager",
    }
    return SimpleNamespace(**{**fields, **overrides})


@pytest.mark.parametrize("kv_heads", [6, 3, 1], ids=["MHA", "GQA", "MQA"])
@pytest.mark.parametrize("scale", [None, 1.0], ids=["scaled", "plain dot product"])
def test_eager_attention_is_the_formula_of_the_paper(kv_heads, scale):
    heads, length, head_dim, value_dim = 6, 5, 10, 7
    query = torch.randn(2, heads, length, head_dim)
    key, value = (
        torch.randn(2, kv_heads, length, head_dim),
        torch.randn(2, kv_heads, length, value_dim),
    )
    visible = torch.ones(length, length).tril().bool()
    scale = scale or head_dim**-0.5
    output, weights = eager_attention(
        torch.nn.Identity(), query, key, value, visible[None, None], scale
    )
    for b in range(2):
        for h in range(heads):
            kv = h * kv_heads // heads
            expected = reference_attention(query[b, h], key[b, kv], value[b, kv], visible, scale)
            torch.testing.assert_close((output[b, :, h], weights[b, h]), expected, **CLOSE)


def test_stacked_single_heads_equal_one_layer_split_into_heads():
    """A teaching text builds many heads by stacking single ones; the split layer gives the same
    numbers."""
    split = randomise(SelfAttention(settings(num_key_value_heads=6), 0, is_causal=True))
    one = settings(num_attention_heads=1, num_key_value_heads=1, attention_output_bias=False)
    hidden_states, mask = torch.randn(2, 5, 36), torch.ones(1, 1, 5, 5).tril().bool()
    total = split.o_proj.bias
    for head in range(6):
        single, rows = SelfAttention(one, 0, is_causal=True), slice(head * 10, head * 10 + 10)
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(single, name).weight.data = getattr(split, name).weight.data[rows]
            getattr(single, name).bias.data = getattr(split, name).bias.data[rows]
        single.o_proj.weight.data = split.o_proj.weight.data[:, rows]
        total = total + single(hidden_states, mask)[0]
    torch.testing.assert_close(split(hidden_states, mask)[0], total, **CLOSE)


def test_rows_of_attention_weights_sum_to_one_and_never_look_ahead():
    """A teaching text takes the softmax over the queries: there the columns sum to one and the
    future leaks."""
    model = DECODER.build("eager")
    ids = torch.randint(3, 101, (2, 9))
    for weights in model(ids, output_attentions=True).attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, 9))
        assert weights.triu(1).abs().max() == 0


def test_attention_shows_the_weights_of_every_layer_of_the_encoder_decoder():
    model = SEQ2SEQ.build("eager")
    source, target = torch.randint(3, 101, (2, 9)), torch.randint(3, 101, (2, 5))
    output = model(
        input_ids=source,
        decoder_input_ids=target,
        output_attentions=True,
        output_hidden_states=True,
    )
    seen = [name for name in output if name.endswith(("attentions", "hidden_states"))]
    shapes = {name: [tuple(x.shape) for x in output[name]] for name in seen}
    assert shapes["encoder_attentions"] == [(2, 6, 9, 9)]
    assert shapes["decoder_attentions"] == [(2, 6, 5, 5)] * 2
    assert shapes["cross_attentions"] == [(2, 6, 5, 9)] * 2
    assert shapes["encoder_hidden_states"] == [(2, 9, 36)] * 2
    assert shapes["decoder_hidden_states"] == [(2, 5, 36)] * 3


@pytest.mark.skipif(
    "num_hidden_layers_key" not in inspect.signature(OutputRecorder).parameters,
    reason="this transformers gives all hidden states or none",
)
def test_the_last_hidden_state_of_either_stack_can_be_asked_for_alone():
    model = SEQ2SEQ.build(encoder_layers=3, decoder_layers=1)
    ids = torch.randint(3, 101, (2, 5))
    output = model(ids, decoder_input_ids=ids, output_hidden_states=[-1])
    for states, depth in ((output.encoder_hidden_states, 3), (output.decoder_hidden_states, 1)):
        assert [state is None for state in states] == [True] * depth + [False]


def test_the_cache_holds_one_copy_of_each_key_head():
    model = DECODER.build()
    cache = model(torch.randint(3, 101, (2, 9)), use_cache=True).past_key_values
    assert isinstance(cache, DynamicCache)
    assert all(tuple(layer.keys.shape) == (2, 3, 9, 10) for layer in cache.layers)


def test_the_encoder_is_read_once_per_source():
    """Cross-attention keys are computed on the first step and found in the cache afterwards."""
    model = SEQ2SEQ.build()
    source = torch.randint(3, 101, (1, 7))
    counts = {"encoder": 0, "keys": 0}
    model.get_encoder().register_forward_hook(
        lambda *_: counts.update(encoder=counts["encoder"] + 1)
    )
    model.get_decoder().layers[0].cross_attn.k_proj.register_forward_hook(
        lambda *_: counts.update(keys=counts["keys"] + 1)
    )
    model.generate(source, max_new_tokens=6, min_new_tokens=6, num_beams=3)
    assert counts == {"encoder": 1, "keys": 1}


@pytest.mark.parametrize("value_head_dim", [None, 14])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_a_value_head_may_have_a_size_of_its_own(backend, qk_norm, value_head_dim):
    if backend.startswith("flash") and value_head_dim == 14:
        pytest.skip(
            "flash kernels pad a value head to the query's size, and cannot narrow the query"
        )
    options = {"value_head_dim": value_head_dim, "qk_norm": qk_norm}
    ids = torch.randint(3, 101, (2, 7))
    eager, other = (
        SEQ2SEQ.build(name, **options)(ids, decoder_input_ids=ids).logits
        for name in ("eager", backend)
    )
    torch.testing.assert_close(other, eager, **CLOSE)


@pytest.mark.parametrize("target_length", [1, 4, 7])
def test_packed_cross_attention_equals_the_masked_one(monkeypatch, target_length):
    """Including a source row of nothing but padding: flash answers zeros there, and nothing else
    changes."""
    simulated_flash.install(monkeypatch)
    layer = randomise(CrossAttention(settings(_attn_implementation="flash_attention_2"), 0))
    target, source = torch.randn(3, target_length, 36), torch.randn(3, 7, 36)
    padding = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [0] * 7])
    flash, _ = layer(target, source, PackedKeys(padding))
    layer.config._attn_implementation = "eager"
    eager, _ = layer(target, source, padding.bool()[:, None, None])
    torch.testing.assert_close(flash[:2], eager[:2], **CLOSE)
    torch.testing.assert_close(flash[2], layer.o_proj.bias.expand_as(flash[2]))


def test_packed_keys_follow_their_layer_to_its_device():
    from accelerate.utils import send_to_device

    moved = send_to_device({"cross_mask": PackedKeys(torch.ones(2, 3))}, "meta")["cross_mask"]
    assert moved.indices.device.type == moved.cu_seq_lens.device.type == "meta"
    assert moved.max_length == 3


@pytest.mark.parametrize("name", ["flash_attention_3", "flash_attention_4"])
def test_every_flash_attention_is_called_alike(family, monkeypatch, name):
    simulated_flash.install(monkeypatch)
    rows = random_rows([3, 9, 6])
    expected = family.logits(family.build("eager"), rows)
    torch.testing.assert_close(family.logits(family.build(name), rows), expected, **CLOSE)


def test_a_registered_backend_receives_every_attention_call_with_its_arguments(family, monkeypatch):
    """vLLM and SGLang plug in here."""
    calls = []

    def spy(module, query, key, value, attention_mask, **kwargs):
        calls.append((module.layer_idx, module.is_causal, set(kwargs)))
        return eager_attention(module, query, key, value, attention_mask, **kwargs)

    AttentionInterface.register("spy", spy)
    AttentionMaskInterface.register("spy", eager_mask)
    model = family.build()
    model.set_attn_implementation("spy")
    ids = torch.randint(3, 101, (2, 7))
    target = family.target(ids)
    output = model(ids, attention_instances="theirs", **target)
    torch.testing.assert_close(output.logits, family.build("eager")(ids, **target).logits, **CLOSE)
    expected = {
        "decoder": [(0, True), (1, True)],
        # encoder, then self and cross of each decoder layer
        "seq2seq": [(0, False), (0, True), (0, False), (1, True), (1, False)],
        "encoder": [(0, False), (1, False)],
        "mixture": [(0, True), (1, True)],
    }
    assert [call[:2] for call in calls] == expected[family.name]
    wanted = {"scaling", "dropout", "sliding_window", "attention_instances"}
    assert all(wanted <= arguments for *_, arguments in calls)
    assert model.is_backend_compatible()


@pytest.mark.parametrize("name", BACKENDS[:2])
def test_the_backend_can_be_chosen_on_loading_and_changed_later(family, tmp_path, name):
    family.build("sdpa").save_pretrained(tmp_path)
    model = family.model_class.from_pretrained(tmp_path, attn_implementation=name)
    assert model.config._attn_implementation == name
    other = "eager" if name == "sdpa" else "sdpa"
    model.set_attn_implementation(other)
    assert model.config._attn_implementation == other


def test_flash_attention_without_its_package_says_so_in_one_sentence(family):
    model = family.build()
    with pytest.raises((ImportError, ValueError), match=r"(?i)flash"):
        model.set_attn_implementation("flash_attention_2")


def test_a_backend_without_weights_says_how_to_see_them(family):
    """sdpa has none to give; a configuration that asks for them anyway is refused."""
    model = family.build("sdpa")
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match=r"output_attentions.*eager"):
        model.config.output_attentions = True


@pytest.mark.slow  # the kernel is compiled, which takes a minute
@torch.no_grad()
def test_flex_attention_gives_the_answer_of_the_eager_one(family):
    """Forward only: on a CPU torch has no backward pass for it."""
    rows = random_rows([3, 9, 6, 1])
    eager, flex = family.build("eager"), family.build()
    flex.set_attn_implementation("flex_attention")
    expected = family.logits(eager, rows, "left")
    torch.testing.assert_close(family.logits(flex, rows, "left"), expected, **CLOSE)


def test_the_call_that_vllm_makes_reaches_attention_and_returns_hidden_states():
    """vLLM flattens its requests to one row of tokens, keeps its own cache, and joins the heads
    itself."""

    def vllm(module, query, key, value, attention_mask, attention_instances=None, **kwargs):
        assert attention_mask is None
        output, _ = eager_attention(module, query, key, value, CAUSAL, **kwargs)
        attention_instances[module.layer_idx].append(output.shape)
        return output.reshape(-1, output.shape[-2] * output.shape[-1]), None

    CAUSAL = torch.ones(1, 1, 6, 6).tril().bool()  # noqa: N806
    AttentionInterface.register("vllm", vllm)
    model = DECODER.build(model_class=DECODER.base_class)
    ids = torch.randint(3, 101, (1, 6))
    expected = model(ids).last_hidden_state
    model.config._attn_implementation = "vllm"
    seen = {0: [], 1: []}
    output = model(
        input_ids=ids,
        position_ids=torch.arange(6)[None],
        use_cache=False,
        attention_instances=seen,
        return_dict=False,
    )
    torch.testing.assert_close(output[0][0], expected[0], **CLOSE)
    assert [len(shapes) for shapes in seen.values()] == [1, 1]


def test_an_engine_that_serves_decoders_is_told_what_to_do_with_an_encoder_decoder(monkeypatch):
    """As it builds the model; its own message would be about an argument of some method."""
    monkeypatch.setattr(
        PreTrainedModel, "_check_and_adjust_attn_implementation", lambda self, name, **_: name
    )
    config = SEQ2SEQ.config()
    config._attn_implementation = "vllm"
    with pytest.raises(ValueError, match=r"vllm serves no .*ctranslate2"):
        SEQ2SEQ.base_class(config)


def test_vllm_can_read_the_call_of_the_backend_and_its_scale_in_the_source():
    """It parses `forward` (since 0.32) and refuses a model whose call stands elsewhere."""
    source = inspect.getsource(SelfAttention.forward)
    assert source.count("attention_interface = ALL_ATTENTION_FUNCTIONS.get_interface(") == 1
    assert source.count("= attention_interface(") == 1
    assert "scaling=self.scaling" in source


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_eager_attention_of_a_padded_batch_is_finite_in_every_dtype(family, dtype):
    model = family.build("eager").to(dtype)
    with torch.no_grad():
        actual = family.logits(model, random_rows([6, 2, 4]), "left")
        model.config._attn_implementation = "sdpa"
        expected = family.logits(model, random_rows([6, 2, 4]), "left")
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.isfinite().all()
        if dtype == torch.float64:
            torch.testing.assert_close(ours, theirs)


def test_flash_attention_refuses_larger_values_than_keys_by_name(monkeypatch):
    simulated_flash.install(monkeypatch)
    model = SEQ2SEQ.build("flash_attention_2", value_head_dim=14)
    with pytest.raises(ValueError, match=r"value_head_dim \(14\) is larger than head_dim \(10\)"):
        SEQ2SEQ.logits(model, random_rows([5]))


def test_an_activation_with_parameters_has_the_models_number_format():
    model = DECODER.build(hidden_act="xielu")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
