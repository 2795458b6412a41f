"""What is fast changes no answer: caches written in place, steps without the calls of modules."""

import copy

import pytest
import torch
from families import DECODER, SEQ2SEQ, random_rows
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from hf_tformer.model import flat
from hf_tformer.model.caching import RoomyLayer, SourceLayer

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
VARIANTS = {
    "as it is": {},
    "post norm": {"norm_position": "post"},
    "layer norm and plain MLP": {
        "norm_type": "layernorm",
        "mlp_type": "plain",
        "hidden_act": "gelu",
    },
    "gated MLP": {"mlp_type": "gated", "hidden_act": "silu"},
    "every bias": {"attention_bias": True, "attention_output_bias": True, "mlp_bias": True},
    "norms of heads": {"qk_norm": True},
    "learned positions": {"position_embedding_type": "learned"},
    "partial rotation": {
        "position_embedding_type": "rotary",
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.4},
    },
    "scale": {"attention_scale": 0.3},
}


def random_states(length, batch=3, size=4):
    return torch.randn(batch, 2, length, size)


@torch.no_grad()
def test_a_cache_written_in_place_holds_what_a_copied_one_holds():
    roomy, plain = RoomyLayer(), DynamicLayer()
    for length in (5, 1, 1, 150, 1, 64, 1):
        keys, values = random_states(length), random_states(length, size=5)
        for ours, theirs in zip(
            roomy.update(keys, values), plain.update(keys, values), strict=True
        ):
            assert torch.equal(ours, theirs)
        for change in (
            lambda layer: layer.reorder_cache(torch.tensor([2, 0, 0])),
            lambda layer: layer.crop(-1),
            lambda layer: layer.batch_select_indices(torch.tensor([1, 2, 0])),
        ):
            change(roomy), change(plain)
            assert torch.equal(roomy.keys, plain.keys)
            assert torch.equal(roomy.values, plain.values)


@torch.no_grad()
def test_a_step_writes_where_the_last_one_ended():
    layer = RoomyLayer()
    layer.update(random_states(20), random_states(20))
    place = layer.keys.data_ptr()
    for _ in range(40):
        layer.update(random_states(1), random_states(1))
    assert layer.keys.data_ptr() == place


@torch.no_grad()
def test_a_long_cache_has_little_room_behind_it():
    layer = RoomyLayer()
    layer.update(random_states(4000), random_states(4000))
    assert layer.keys.untyped_storage().nbytes() < 1.1 * layer.keys.nbytes


@torch.no_grad()
def test_a_copy_of_a_cache_goes_its_own_way(family):
    """As assisted decoding and shared prompts need it."""
    model, ids = family.build(), torch.tensor(random_rows([9, 9]))
    cache = DynamicCache(config=model.config)
    family.steps(model, ids[:, :5], 5, cache)
    kept = copy.deepcopy(cache)
    first = family.steps(model, ids[:, 5:], 1, cache)
    second = family.steps(model, ids[:, 5:], 1, kept)
    assert torch.equal(first, second)


@torch.no_grad()
def test_a_cache_can_be_kept_in_a_file(family, tmp_path):
    model, ids = family.build(), torch.tensor(random_rows([9, 9]))
    cache = DynamicCache(config=model.config)
    expected = family.steps(model, ids, 1, cache)
    cache.crop(-4)
    torch.save(cache, tmp_path / "cache.pt")
    kept = torch.load(tmp_path / "cache.pt", weights_only=False)
    assert kept.get_seq_length() == 5
    actual = family.steps(model, ids[:, 5:], 1, kept)
    torch.testing.assert_close(actual, expected[:, 5:], **CLOSE)


@torch.no_grad()
def test_a_cache_that_was_made_without_a_configuration_serves_too():
    model, ids = DECODER.build(), torch.tensor(random_rows([5]))
    actual = DECODER.steps(model, ids, 1, DynamicCache())
    torch.testing.assert_close(actual, DECODER.at_once(model, ids), **CLOSE)


def test_gradients_reach_what_is_in_a_cache():
    """Prefix tuning learns the keys and values that a cache begins with."""
    model, ids = DECODER.build(), torch.tensor(random_rows([6]))
    cache = DynamicCache(config=model.config)
    model(ids[:, :3], past_key_values=cache, use_cache=True)
    model(ids[:, 3:], past_key_values=cache, use_cache=True).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.model.layers[0].parameters())


def test_beams_of_one_source_move_nothing_and_others_do():
    layer = SourceLayer()
    states = random_states(4, batch=2).repeat_interleave(3, dim=0)
    layer.update(states, states)
    place = layer.keys.data_ptr()
    layer.reorder_cache(torch.tensor([2, 2, 0, 3, 5, 3]))
    assert layer.keys.data_ptr() == place
    layer.reorder_cache(torch.tensor([3, 4, 5, 0, 1, 2]))
    assert torch.equal(layer.keys, states[[3, 4, 5, 0, 1, 2]])


def steps_taken(monkeypatch, family, model, flat_steps):
    """The logits of a left-padded batch, token by token, and how often modules were left out."""
    taken = []
    run = flat.run_flat
    for module in ("modeling_decoder", "stacks_seq2seq"):
        path = f"hf_tformer.model.{module}"
        monkeypatch.setattr(f"{path}.run_flat", lambda *args: taken.append(1) or run(*args))
        if not flat_steps:
            monkeypatch.setattr(f"{path}.flat_step", lambda *args: ())
    ids = torch.tensor(random_rows([9, 9, 9]))
    with torch.no_grad():
        return family.steps(model, ids, 1), len(taken)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_without_modules_computes_what_they_compute(family, variant, monkeypatch):
    model = family.build(**VARIANTS[variant])
    with monkeypatch.context() as patch:
        fast, taken = steps_taken(patch, family, model, True)
    with monkeypatch.context() as patch:
        slow, none = steps_taken(patch, family, model, False)
    assert taken >= 8  # of nine: the first finds no cache of a source yet
    assert none == 0
    torch.testing.assert_close(fast, slow, **CLOSE)


class Adapted(nn.Linear):
    def forward(self, states):
        return super().forward(states) * 2


def adapt(model):
    """A layer of another class, as adapters and quantisers put in place."""
    mlp = model.get_decoder().layers[0].mlp
    adapted = Adapted(*mlp.up_proj.weight.shape[::-1], bias=mlp.up_proj.bias is not None)
    adapted.load_state_dict(mlp.up_proj.state_dict())
    mlp.up_proj = adapted


def watch(model):
    model.get_decoder().layers[0].self_attn.o_proj.register_forward_hook(
        lambda module, inputs, output: output * 2
    )


def ask_for_attention(model):
    model.config._attn_implementation = "eager"


@pytest.mark.parametrize("change", [adapt, watch, ask_for_attention])
def test_modules_are_called_where_they_are_more_than_their_weights(family, change, monkeypatch):
    model = family.build()
    change(model)
    with monkeypatch.context() as patch:
        actual, taken = steps_taken(patch, family, model, True)
    with monkeypatch.context() as patch:
        expected, _ = steps_taken(patch, family, model, False)
    assert taken == 0
    torch.testing.assert_close(actual, expected, **CLOSE)


@pytest.mark.parametrize("family_name", ["decoder", "seq2seq"])
def test_new_weights_are_used_in_the_next_text(family_name):
    family = DECODER if family_name == "decoder" else SEQ2SEQ
    model = family.build()
    rows = random_rows([5])
    before = family.generate(model, rows, max_new_tokens=8, do_sample=False)
    other = family.build(initializer_range=0.3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-1.3)
    expected = family.generate(other, rows, max_new_tokens=8, do_sample=False)
    model.load_state_dict(other.state_dict())
    assert family.generate(model, rows, max_new_tokens=8, do_sample=False) == expected != before
