"""An encoder without the calls of its modules computes what they compute, wherever it may."""

import random

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import hf_tformer
from hf_tformer import fast
from hf_tformer.fast import layers, products
from hf_tformer.model.modeling_encoder import TformerEncoderLayer
from support.counting import counted_passes
from support.families import pad, random_rows
from support.fast_paths import Adapted
from support.parity import randomise

SIZES = {
    "vocab_size": 101,
    "hidden_size": 36,
    "intermediate_size": 44,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 10,
    "max_position_embeddings": 512,
    "sliding_window": 4,
    "pad_token_id": 0,
}
BERT = {
    "type_vocab_size": 2,
    "position_embedding_type": "learned",
    "sliding_window": None,
    "norm_type": "layernorm",
    "norm_position": "post",
    "embedding_norm": True,
    "mlp_type": "plain",
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
}
MPNET = {**BERT, "type_vocab_size": 0, "score_bias": "relative"}
MODERNBERT = {
    "norm_type": "layernorm_unbiased",
    "embedding_norm": True,
    "first_attention_norm": False,
}
KINDS = {
    "as it is": {},
    "BERT": BERT,
    "MPNet": MPNET,
    "ModernBERT": MODERNBERT,
    "windows beside a score for each distance": {"score_bias": "relative"},
    "norms of heads": {"qk_norm": True},
    "part of each head is rotated": {
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.4}
    },
    "all layers slide": {"layer_types": ["sliding_attention"] * 4},
    "the first norm is that of the embeddings, and nothing else": {
        "first_attention_norm": False,
        "final_norm": False,
    },
}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def build(backend="sdpa", model_class=hf_tformer.TformerEncoderModel, **overrides):
    model = model_class(hf_tformer.TformerEncoderConfig(**{**SIZES, **overrides}))
    model.config._attn_implementation = backend
    return randomise(model).eval()


def padded(lengths, side="right"):
    ids, mask = pad(random_rows(lengths), side)
    return {"input_ids": ids, "attention_mask": mask}


def packed(lengths):
    """Texts in one row, without padding."""
    return {
        "input_ids": torch.cat([torch.tensor(row) for row in random_rows(lengths)])[None],
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
    }


@torch.no_grad()
def encoded(model, plain=False, real=None, **inputs):
    """The vectors of real tokens, and whether the modules were left out."""
    with counted_passes("run_whole_sequences", plain) as taken:
        states = model(**inputs).last_hidden_state
    mask = inputs.get("attention_mask", real)
    return (states if mask is None else states[mask.bool()]), len(taken)


def assert_both_ways_agree(model, taken=1, margins=CLOSE, **inputs):
    quick, found = encoded(model, **inputs)
    slow, none = encoded(model, plain=True, **inputs)
    assert (found, none) == (taken, 0)
    torch.testing.assert_close(quick, slow, **margins)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_encoder_reads_without_modules_as_with_them(kind, side):
    model = build(**KINDS[kind]).double()
    assert_both_ways_agree(model, margins=EXACT, **padded([9, 2, 9, 1, 14, 30], side))
    whole = {"input_ids": torch.tensor(random_rows([11, 11]))}
    assert_both_ways_agree(model, margins=EXACT, **whole)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["as it is", "BERT", "MPNet"])
def test_no_module_of_a_layer_is_called(kind, monkeypatch):
    model, inputs, called = build(**KINDS[kind]), padded([9, 4]), []
    call = nn.Module.__call__

    def counted(module, *args, **kwargs):
        called.append(module)
        return call(module, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "__call__", counted)
    model(**inputs)
    within = {module for layer in model.layers for module in layer.modules()}
    assert called
    assert not within & set(called)


def test_packed_texts_are_read_each_by_itself():
    lengths = [5, 30, 1, 5, 9]
    rows, inputs = random_rows(lengths), packed(lengths)
    for kind in ("as it is", "BERT", "MPNet"):
        model = build(**KINDS[kind])
        assert_both_ways_agree(model, **inputs)
        alone = torch.cat([encoded(model, input_ids=torch.tensor([row]))[0][0] for row in rows])
        torch.testing.assert_close(encoded(model, **inputs)[0][0], alone, **CLOSE)


def test_rows_of_packed_texts_are_kept_apart_in_a_batch():
    positions = [[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 0, 1, 2, 3, 4, 5, 6], list(range(9))]
    ids = torch.tensor(random_rows([9, 9, 9]))
    assert_both_ways_agree(build(), input_ids=ids, position_ids=torch.tensor(positions))


GAPS = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 0, 1], [1] * 9, [0, 1] * 4 + [1]])


def test_padding_between_tokens_is_left_out_where_no_distance_counts():
    ids = torch.tensor(random_rows([9, 9, 9]))
    for kind, taken in (("BERT", 1), ("as it is", 0), ("MPNet", 0)):
        model = build(**KINDS[kind])
        assert_both_ways_agree(model, taken, input_ids=ids, attention_mask=GAPS)


def test_a_text_of_padding_alone_takes_nothing_from_the_others():
    inputs = padded([9, 4, 6])
    inputs["attention_mask"][1] = 0
    assert_both_ways_agree(build(), **inputs)


@pytest.mark.parametrize("window", [2, 7, 40])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 191, 300])
def test_a_long_text_under_a_window_is_read_as_a_short_one_is(window, length):
    """At whatever place a block ends, and whatever it does not fill."""
    model = build(sliding_window=window, num_hidden_layers=3).double()
    inputs = padded([length, 300, length, 20])
    assert_both_ways_agree(model, margins=EXACT, **inputs)


@pytest.mark.parametrize("length", [200, 257])
def test_blocks_serve_a_window_that_looks_back_alone(length):
    """In the decoder-only family: its masks are compared, and its windows are as narrow."""
    config = hf_tformer.TformerDecoderConfig(
        **{**SIZES, "layer_types": ["sliding_attention"] * 4, "sliding_window": 5}
    )
    model = randomise(hf_tformer.TformerDecoderModel(config)).eval().double()
    ids = torch.tensor(random_rows([length, length]))
    with counted_passes("run_whole_sequences") as taken, torch.no_grad():
        quick = model(ids, use_cache=False).last_hidden_state
        with fast.disabled():
            slow = model(ids, use_cache=False).last_hidden_state
    assert len(taken) == 1
    torch.testing.assert_close(quick, slow, **EXACT)


def largest_tensor(length):
    """Numbers in the largest tensor of a pass, of all that it makes."""
    sizes = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            made = result if isinstance(result, tuple) else (result,)
            tensors = (x for x in made if isinstance(x, torch.Tensor))
            sizes[0] = max(sizes[0], *(t.untyped_storage().nbytes() for t in tensors), 0)
            return result

    model = build(layer_types=["sliding_attention"] * 4)
    ids = torch.tensor(random_rows([length]))
    with Watch(), torch.no_grad():
        model(ids)
    return sizes[0]


def test_under_a_window_no_tensor_grows_faster_than_the_text():
    assert largest_tensor(4096) < 2.1 * largest_tensor(2048)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_in_any_precision_is_as_exact_as_its_modules(kind, dtype):
    model, inputs = build(**KINDS[kind]), padded([9, 200, 5])
    exact, _ = encoded(model.double(), plain=True, **inputs)
    model = model.to(dtype)
    quick, taken = encoded(model, **inputs)
    slow, _ = encoded(model, plain=True, **inputs)
    assert taken == 1
    assert quick.dtype == dtype
    lost, allowed = ((states - exact).abs().mean() for states in (quick, slow))
    assert lost <= 1.2 * allowed + 1e-12


def drawn_fields(draw):
    """A configuration with every field of the stack drawn."""
    window = draw.choice([None, 1, 3, 8, 17, 100])
    layers, norm_position = draw.randint(1, 4), draw.choice(["pre", "post"])
    fields = {
        "num_hidden_layers": layers,
        "num_key_value_heads": draw.choice([1, 2, 3, 6]),
        "type_vocab_size": draw.choice([0, 2]),
        "sliding_window": window,
        "position_embedding_type": draw.choice(["rotary", "learned", "sinusoidal", "none"]),
        "score_bias": draw.choice([None, None, "relative"]),
        "norm_type": draw.choice(["rmsnorm", "layernorm", "layernorm_unbiased"]),
        "norm_position": norm_position,
        "final_norm": draw.choice([None, True, False]),
        "embedding_norm": draw.choice([True, False]),
        "first_attention_norm": norm_position == "post" or draw.choice([True, False]),
        "qk_norm": draw.choice([True, False]),
        "mlp_type": draw.choice(["plain", "gated"]),
        "hidden_act": draw.choice(["gelu", "silu", "gelu_new", "relu", "xielu"]),
        "attention_scale": draw.choice([None, 0.3]),
        "dropout": draw.choice([0.0, 0.1]),
    }
    fields |= {
        name: draw.choice([True, False])
        for name in ("attention_bias", "attention_output_bias", "mlp_bias")
    }
    if window is not None:
        kinds = ["full_attention", "sliding_attention"]
        fields["layer_types"] = draw.choices(kinds, k=layers)
    return fields


def drawn_batch(draw):
    lengths = [draw.choice([1, 2, 5, 17, 40, 150]) for _ in range(draw.randint(1, 5))]
    if draw.random() < 0.25:
        return packed(lengths)
    return padded(lengths, draw.choice(["left", "right"]))


@pytest.mark.parametrize("seed", range(40))
def test_any_encoder_reads_any_batch_alike_in_both_ways(seed):
    draw = random.Random(seed)
    fields, batch = drawn_fields(draw), drawn_batch(draw)
    is_lone = batch["input_ids"].numel() == 1  # a vector is no matter of whole texts
    model = build(**fields).double()
    assert_both_ways_agree(model, taken=int(not is_lone), margins=EXACT, **batch)


HEADS = [
    hf_tformer.TformerEncoderForMaskedLM,
    hf_tformer.TformerEncoderForSequenceClassification,
    hf_tformer.TformerEncoderForTokenClassification,
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@torch.no_grad()
def test_every_head_answers_alike_in_both_ways(head, pooling):
    model, inputs = build(model_class=head, classifier_pooling=pooling), padded([9, 4, 6], "left")
    with counted_passes("run_whole_sequences") as taken:
        quick = model(**inputs).logits
    with fast.disabled():
        slow = model(**inputs).logits
    assert len(taken) == 1
    if quick.ndim == 3:
        real = inputs["attention_mask"].bool()
        quick, slow = quick[real], slow[real]
    torch.testing.assert_close(quick, slow, **CLOSE)


# Where anything else takes part


class LouderLayer(TformerEncoderLayer):
    def forward(self, hidden_states, *args, **kwargs):
        return super().forward(hidden_states, *args, **kwargs) * 1.5


class LouderModel(hf_tformer.TformerEncoderModel):
    layer_class = LouderLayer


def put_an_adapter(model):
    layer = Adapted(*model.layers[0].mlp.up_proj.weight.shape[::-1], bias=False)
    layer.load_state_dict(model.layers[0].mlp.up_proj.state_dict())
    model.layers[0].mlp.up_proj = layer


def watch(model):
    double = lambda module, inputs, output: output * 2  # noqa: E731
    model.layers[0].self_attn.o_proj.register_forward_hook(double)


def ask_for_eager(model):
    model.config._attn_implementation = "eager"


def watch_the_bias(model):
    def forget(module, inputs, biases):
        return [torch.zeros_like(bias) for bias in biases]

    model.score_bias.register_forward_hook(forget)


CHANGES = [put_an_adapter, watch, ask_for_eager, watch_the_bias, lambda model: model.train()]


@pytest.mark.parametrize("change", CHANGES)
def test_modules_are_called_where_they_are_more_than_their_weights(change):
    model = build(score_bias="relative")
    change(model)
    assert_both_ways_agree(model, taken=0, **padded([9, 4]))


def test_layers_of_a_subclass_are_called():
    assert_both_ways_agree(build(model_class=LouderModel), taken=0, **padded([9, 4]))


SEEN_ALL = torch.ones(2, 1, 9, 9, dtype=torch.bool)
ASKED = {
    "a finished mask": {"attention_mask": SEEN_ALL.tril(2)},
    "attention to be shown": {"output_attentions": True},
    "states to be shown": {"output_hidden_states": True},
    "one direction": {"is_causal": True, "attention_mask": SEEN_ALL[:, 0, 0].long()},
    "lengths for a backend": {"cu_seq_lens_q": torch.tensor([0, 9, 18])},
}


@torch.no_grad()
@pytest.mark.parametrize("what", ASKED)
def test_texts_that_are_read_in_another_way_are_left_to_modules(what):
    model, ids = build(sliding_window=None), torch.tensor(random_rows([9, 9]))
    with counted_passes("run_whole_sequences") as taken:
        quick = model(ids, **ASKED[what]).last_hidden_state
    with fast.disabled():
        assert torch.equal(quick, model(ids, **ASKED[what]).last_hidden_state)
    assert taken == []


def test_gradients_reach_every_layer_of_an_encoder():
    model = build()
    model(**padded([9, 4])).last_hidden_state.sum().backward()
    assert all(parameter.grad is not None for parameter in model.layers.parameters())


@torch.no_grad()
def test_what_a_hook_on_the_embeddings_has_kept_does_not_change():
    model, kept = build(embedding_norm=True), []
    model.embed_norm.register_forward_hook(
        lambda module, inputs, output: kept.append((output, output.clone()))
    )
    model(torch.tensor(random_rows([9, 9])))
    assert all(torch.equal(output, copy) for output, copy in kept)


def test_autocast_is_left_to_modules():
    with torch.autocast("cpu", torch.bfloat16):
        assert_both_ways_agree(build(), taken=0, **padded([9, 4]))


@pytest.mark.parametrize("kind", ["as it is", "BERT", "the first norm is that of the embeddings"])
def test_a_wide_mlp_takes_a_part_of_the_tokens_at_a_time(kind, monkeypatch):
    name = next(name for name in KINDS if name.startswith(kind))
    model = build(**KINDS[name]).double()
    monkeypatch.setattr(layers, "WIDEST", 7 * SIZES["intermediate_size"])
    assert_both_ways_agree(model, margins=EXACT, **padded([9, 2, 9, 1, 14, 30]))


@pytest.mark.parametrize("name", ["gelu", "silu", "gelu_python", "gelu_new", "relu"])
def test_an_activation_in_place_is_the_one_that_was_asked_for(name, monkeypatch):
    model = build(hidden_act=name).double()
    assert_both_ways_agree(model, margins=EXACT, **padded([9, 4]))
    before = encoded(model, **padded([9, 4]))[0]
    kind = type(model.layers[0].mlp.act_fn)
    monkeypatch.setattr(kind, "forward", lambda module, states: states * 0)
    assert not torch.equal(before, encoded(model, **padded([9, 4]))[0])
    assert_both_ways_agree(model, margins=EXACT, **padded([9, 4]))


@pytest.mark.parametrize("name", ["linear", "exchanged", "onednn"])
@pytest.mark.parametrize("tokens", [5, 30, 90])
def test_large_weights_are_multiplied_alike_by_every_function(name, tokens, monkeypatch):
    monkeypatch.setattr(
        products,
        "fastest",
        lambda functions, *_: functions.get(name) or functions[f"{name}, added"],
    )
    for kind in ("as it is", "BERT"):
        fields = {**KINDS[kind], "hidden_size": 384, "intermediate_size": 512}
        model = build(num_hidden_layers=2, initializer_range=0.02, **fields)
        for parameter in model.parameters():
            parameter.data.mul_(0.2)
        assert_both_ways_agree(model, **padded([tokens - 3, 3]))
