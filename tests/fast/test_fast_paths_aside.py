"""Where anything else takes part, what is fast steps aside, and what others hold stays theirs."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from torch import nn
from transformers import DynamicCache, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from hf_tformer import TformerDecoderForCausalLM, TformerDecoderModel, fast
from hf_tformer.fast.caches import append
from hf_tformer.model.attention import SelfAttention
from hf_tformer.model.modeling_decoder import TformerDecoderLayer
from support.counting import generated, left_padded, steps_taken, written
from support.families import DECODER, SEQ2SEQ, random_rows
from support.fast_paths import CLOSE, read_at_once


class LouderLayer(TformerDecoderLayer):
    def forward(self, hidden_states, *args, **kwargs):
        return super().forward(hidden_states, *args, **kwargs) * 1.5


class LouderModel(TformerDecoderModel):
    layer_class = LouderLayer


class ShiftedModel(TformerDecoderModel):
    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.last_hidden_state = output.last_hidden_state.roll(1, dims=-1)
        return output


def with_model(model_class):
    def change(model):
        inner = model_class(model.config)
        inner.load_state_dict(model.model.state_dict())
        model.model = inner
        return model.eval()

    return change


def subtract(layer, hidden_states, **inputs):
    hidden_states = (
        hidden_states - layer.self_attn(layer.self_attn_norm(hidden_states), **inputs)[0]
    )
    return hidden_states - layer.mlp(layer.mlp_norm(hidden_states))


def own_arrangement(model):
    for layer in model.model.layers:
        layer.run_sublayers = subtract
    return model


def dropping(model):
    """Samples of what a model thinks: dropout goes on, everything else is in inference."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train()
    return model


CHANGES = {
    "layers of a subclass": with_model(LouderModel),
    "a model of a subclass": with_model(ShiftedModel),
    "an arrangement of one's own": own_arrangement,
    "dropout that goes on": dropping,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whoever_changes_a_part_is_heard_at_every_step(change):
    model = CHANGES[change](DECODER.build(dropout=0.1).eval())
    ours, taken = written(model, **left_padded([5]))
    theirs, _ = written(model, plain=True, **left_padded([5]))
    assert taken == 0
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("change", sorted({*CHANGES} - {"a model of a subclass"}))
def test_whoever_changes_a_part_is_heard_in_a_forward_pass(change):
    model, mask = CHANGES[change](DECODER.build(dropout=0.1).eval()), torch.ones(3, 9)
    logits = []
    for plain in (False, True):
        torch.manual_seed(5)
        found, _, taken = read_at_once(DECODER, model, mask.long(), plain)
        assert taken == 0
        logits.append(found)
    assert torch.equal(*logits)


PATCHED = [SelfAttention, nn.Linear, TformerDecoderLayer, TformerDecoderForCausalLM]


@pytest.mark.parametrize("kind", PATCHED, ids=lambda kind: kind.__name__)
def test_a_class_that_was_patched_is_called(kind, monkeypatch):
    model, calls, forward = DECODER.build(), [], kind.forward

    def patched(module, *args, **kwargs):
        calls.append(kind)
        return forward(module, *args, **kwargs)

    monkeypatch.setattr(kind, "forward", patched)
    _, taken = written(model, **left_padded([5]), max_new_tokens=4)
    assert taken == 0
    assert len(calls) >= 4


def test_a_hook_on_the_model_within_sees_every_step(family):
    model, seen = family.build(), []
    model.model.register_forward_hook(lambda *args: seen.append(1))
    written(model, **left_padded([5]), max_new_tokens=6)
    assert len(seen) == 6


def test_a_hook_on_all_modules_sees_them_all(family):
    model, seen = family.build(), set()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, *args: seen.add(type(module))
    )
    try:
        written(model, **left_padded([5]), max_new_tokens=2)
    finally:
        handle.remove()
    assert {SelfAttention, nn.Linear} <= seen


@torch.no_grad()
def test_a_hook_that_comes_between_two_steps_is_called():
    model, ids, seen = DECODER.build(), torch.tensor(random_rows([6])), []
    cache = DynamicCache(config=model.config)
    for position in range(6):
        if position == 4:
            model.model.layers[0].register_forward_hook(lambda *args: seen.append(1))
        model(ids[:, position : position + 1], past_key_values=cache)
    assert len(seen) == 2


@torch.no_grad()
def test_what_a_hook_has_kept_does_not_change(family):
    model, kept = family.build(), []
    for stack in {model.get_encoder() if family is SEQ2SEQ else model.model, model.get_decoder()}:
        stack.embed_norm.register_forward_hook(
            lambda module, inputs, output: kept.append((output, output.clone()))
        )
    family.steps(model, torch.tensor(random_rows([7])), 1)
    family.at_once(model, torch.tensor(random_rows([7])))
    assert len(kept) > 7
    assert all(torch.equal(output, copy) for output, copy in kept)


def test_a_quantised_model_writes(family):
    from torch.ao.quantization import quantize_dynamic

    model = quantize_dynamic(family.build(), {nn.Linear})
    assert model.generate(**left_padded([5, 3]), max_new_tokens=4, pad_token_id=0).shape[0] == 2


# What is given


def test_a_prompt_that_fills_the_learned_positions_is_still_answered():
    model = DECODER.build(position_embedding_type="learned", max_position_embeddings=24)
    for beams in (1, 3):
        options = {**left_padded([24]), "num_beams": beams, "max_new_tokens": 1}
        ours, _ = written(model, **options)
        theirs, _ = written(model, plain=True, **options)
        assert ours.tolist() == theirs.tolist()


def test_a_prompt_padded_on_the_wrong_side_is_continued_as_in_transformers():
    model = DECODER.build()
    ids = torch.tensor(random_rows([6, 6]))
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    prompt = {"input_ids": ids, "attention_mask": mask}
    ours, _ = written(model, **prompt)
    theirs, _ = written(model, plain=True, **prompt)
    assert ours.tolist() == theirs.tolist()


def test_labels_where_padding_is_cost_in_evaluation_what_they_cost_in_training():
    model = DECODER.build()
    ids, mask = torch.tensor(random_rows([6, 6])), torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    trained = model(ids, mask, labels=ids).loss
    with torch.no_grad():
        torch.testing.assert_close(model(ids, mask, labels=ids).loss, trained.detach(), **CLOSE)


def test_positions_that_an_encoder_decoder_does_not_know_change_nothing():
    model, prompt = SEQ2SEQ.build(), left_padded([5])
    plain, _ = written(model, **prompt)
    given, _ = written(model, **prompt, position_ids=torch.arange(30, 35)[None])
    assert plain.tolist() == given.tolist()


def test_beams_take_ids_of_any_whole_type(family):
    model, prompt = family.build(), left_padded([5, 3])
    options = {"num_beams": 3, "max_new_tokens": 6, "pad_token_id": 0}
    narrow = {**prompt, "input_ids": prompt["input_ids"].int()}
    assert model.generate(**narrow, **options).tolist() == (
        model.generate(**prompt, **options).tolist()
    )


class Watcher:
    """A processor that looks at all rows together."""

    def __init__(self):
        self.seen = []

    def __call__(self, input_ids, scores):
        self.seen.append(scores)
        return scores + scores.mean(0, keepdim=True)


def test_a_processor_that_mixes_rows_sees_true_scores_of_all(family):
    model, inputs, seen = family.build(), left_padded([7, 3, 5, 4]), []
    inputs |= {"eos_token_id": list(range(3, 30)), "min_new_tokens": 2}
    for own_steps in (True, False):
        watcher = Watcher()
        options = {**inputs, "logits_processor": LogitsProcessorList([watcher])}
        output, _ = written(model, plain=not own_steps, **options)
        seen.append((output.tolist(), torch.stack(watcher.seen)))
    assert seen[0][0] == seen[1][0]
    torch.testing.assert_close(seen[0][1], seen[1][1], **CLOSE)


def test_rows_stay_where_the_longest_decides_how_all_are_rotated():
    rope = {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 16}
    model = DECODER.build(rope_parameters=rope, max_position_embeddings=16)
    inputs = {**left_padded([14, 3, 5]), "eos_token_id": list(range(3, 40)), "min_new_tokens": 2}
    ours, rows = generated(model, **inputs)
    theirs, _ = written(model, plain=True, **inputs)
    assert set(rows) == {3}
    assert ours.tolist() == theirs.tolist()


# What others hold of a cache


def layer_with(length):
    layer = DynamicLayer()
    append(layer, torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4))
    return layer


@torch.no_grad()
def test_a_snapshot_of_a_cache_stays_as_it_was():
    layer = layer_with(5)
    prefix = layer.keys, layer.values
    first = append(layer, *torch.randn(2, 1, 2, 1, 4))
    kept = [states.clone() for states in first]
    layer.keys, layer.values = prefix
    append(layer, *torch.randn(2, 1, 2, 1, 4))
    assert all(map(torch.equal, first, kept))


@torch.no_grad()
def test_a_prefix_can_be_shared_by_all_rows_without_a_copy():
    layer = layer_with(5)
    prefix = layer.keys
    layer.keys, layer.values = (x.expand(3, -1, -1, -1) for x in (layer.keys, layer.values))
    keys, _ = append(layer, *torch.randn(2, 3, 2, 1, 4))
    assert torch.equal(keys[:, :, :5], prefix.expand(3, -1, -1, -1))


@torch.no_grad()
@pytest.mark.parametrize(
    "cut", [lambda x: x[:, :, 3:], lambda x: x.transpose(1, 2)], ids=["later", "turned"]
)
def test_rows_are_selected_of_whatever_stands_in_a_cache(cut):
    layer = layer_with(5)
    layer.keys, layer.values = cut(layer.keys), cut(layer.values)
    expected = layer.keys[[0, 0]]
    layer.batch_select_indices(torch.tensor([0, 0]))
    assert torch.equal(layer.keys, expected)


def test_a_cache_made_in_inference_mode_serves_outside_of_it():
    model, ids = DECODER.build(), torch.tensor(random_rows([6]))
    with torch.inference_mode():
        cache = model(ids[:, :4], use_cache=True).past_key_values
    written_on = model.generate(ids, past_key_values=cache, max_new_tokens=4)
    assert written_on.tolist() == model.generate(ids, max_new_tokens=4).tolist()


@torch.no_grad()
def test_a_cache_that_was_written_in_place_holds_nothing_but_what_transformers_put_there(family):
    """Exporters take every tensor of a cache for an input of the graph."""
    model, cache = family.build(), None
    family.steps(model, torch.tensor(random_rows([6])), 1, cache := DynamicCache())
    layer = DynamicLayer()
    layer.update(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
    assert all(type(kept) is DynamicLayer for kept in cache.layers)
    assert all(vars(kept).keys() == vars(layer).keys() for kept in cache.layers)


@torch.no_grad()
@pytest.mark.parametrize("change", ["loaded", "assigned", "in place", "memory", "modules"])
def test_weights_that_change_between_two_steps_count_from_then_on(change, family):
    model, ids = family.build(), torch.tensor(random_rows([8, 8]))
    other = {name: tensor * -1.3 + 0.1 for name, tensor in model.state_dict().items()}

    def steps(plain):
        model = family.build()
        cache = DynamicCache(config=model.config.get_text_config(decoder=True))
        with fast.disabled() if plain else nullcontext():
            family.steps(model, ids[:, :4], 1, cache)
            if change in ("loaded", "assigned"):
                model.load_state_dict(other, assign=change == "assigned")
            elif change == "modules":
                replace_linears(model)
            for name, parameter in model.named_parameters():
                if change == "in place":
                    parameter.copy_(other[name])
                elif change == "memory":
                    parameter.data = other[name].clone()
            return family.steps(model, ids[:, 4:], 1, cache)

    torch.testing.assert_close(steps(plain=False), steps(plain=True), **CLOSE)


def replace_linears(model):
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, nn.Linear):
                setattr(module, name, deepcopy(part))
                getattr(module, name).weight.mul_(-1.3)


class CountingCache(DynamicCache):
    updates = 0

    def update(self, *args, **kwargs):
        self.updates += 1
        return super().update(*args, **kwargs)


def test_a_cache_of_ones_own_is_updated_by_every_layer_of_every_step():
    model, ids, cache = DECODER.build(), torch.tensor(random_rows([5])), CountingCache()
    output = model.generate(ids, past_key_values=cache, max_new_tokens=6)
    assert cache.updates == 6 * len(model.model.layers)
    assert output.tolist() == model.generate(ids, max_new_tokens=6).tolist()


def test_what_is_left_aside_here_is_fast_elsewhere(family):
    """The other tests of this file would pass if nothing were ever fast."""
    _, taken = written(family.build(), **left_padded([5]))
    _, steps = steps_taken(family, family.build())
    assert taken > 10
    assert steps >= 8
