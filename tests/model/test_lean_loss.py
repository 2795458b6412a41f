"""The loss that never holds all logits is the plain one, in value and in every gradient."""

import importlib
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from hf_tformer.model import losses
from support.families import DECODER, build_for_graphs, decoder_first, random_rows

ROWS = random_rows([9, 3, 7, 5, 8, 2, 6, 4])
TARGETS = random_rows([4, 6, 3, 8, 2, 7, 5, 9], seed=1)
EXACT = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """A few rows at a time, with a rest, as long texts are taken."""
    monkeypatch.setattr(losses, "CHUNK_TOKENS", 7)


def step(model, batch, **kwargs):
    model.zero_grad()
    output = model(**batch, **kwargs)
    output.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    return output.loss.detach(), gradients


def test_training_returns_logits_only_if_asked(family):
    batch = family.training_batch(ROWS, TARGETS)
    model = family.build()
    assert model(**batch).logits is not None  # evaluation
    assert model(**batch, return_logits=False).logits is None
    model.train()
    assert model(**batch).logits is None
    assert model(**batch, return_logits=True).logits is not None
    del batch["labels"]
    given = family.target(batch["input_ids"])
    assert model(**batch, **given).logits is not None  # there is nothing else to return
    asking = family.build(return_logits_in_training=True).train()
    assert asking(**family.training_batch(ROWS, TARGETS)).logits is not None


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"label_smoothing": 0.1},
        {"z_loss": 1e-2},
        {"label_smoothing": 0.2, "z_loss": 1e-2, "lm_head_bias": True, "logit_scale": 0.3},
    ],
    ids=["plain", "smoothing", "z-loss", "everything"],
)
@pytest.mark.parametrize("count", [None, 123])
def test_loss_and_gradients_are_those_of_the_full_logits(family, settings, tied, count):
    model = family.build(tie_word_embeddings=tied, **settings)
    batch = family.training_batch(ROWS, TARGETS)
    expected = step(model, batch, return_logits=True, num_items_in_batch=count)
    actual = step(model, batch, return_logits=False, num_items_in_batch=count)
    torch.testing.assert_close(actual, expected, **EXACT)


@pytest.mark.parametrize("ignore_index", [-100, 5])
def test_other_ignored_labels_are_ignored_too(ignore_index):
    model = DECODER.build()
    batch = DECODER.training_batch(ROWS)
    batch["labels"] = batch["labels"].masked_fill(batch["labels"] == -100, ignore_index)
    expected = step(model, batch, return_logits=True, ignore_index=ignore_index)
    actual = step(model, batch, return_logits=False, ignore_index=ignore_index)
    torch.testing.assert_close(actual, expected, **EXACT)


def largest_allocation(run):
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run()
    return max(event.self_cpu_memory_usage for event in profile.events())


def test_nothing_as_large_as_the_logits_is_ever_made(family):
    model = family.build(vocab_size=9973).train()
    rows = random_rows([84] * 4)
    batch = family.training_batch(rows, rows)
    logits = 4 * 84 * 9973 * 4  # bytes
    table = 9973 * model.config.hidden_size * 4
    assert table < logits / 4
    assert largest_allocation(lambda: step(model, batch, return_logits=True)) >= logits
    assert largest_allocation(lambda: step(model, batch)) <= table


def test_a_sum_in_half_precision_is_no_worse_than_with_full_logits():
    torch.manual_seed(0)
    states, head = torch.randn(60, 32), nn.Linear(32, 997)
    labels = torch.randint(997, (60,))

    def gradients(states, head, is_lean):
        states = states.detach().requires_grad_()
        head.zero_grad()
        logits = losses.Unprojected(states, head) if is_lean else head(states)
        loss = losses.language_model_loss(logits, labels)
        loss.backward()
        return [tensor.double() for tensor in (loss, states.grad, head.weight.grad, head.bias.grad)]

    head.requires_grad_().to(torch.bfloat16)
    rounded = states.to(torch.bfloat16)
    lean, full = (gradients(rounded, head, is_lean) for is_lean in (True, False))
    reference = gradients(rounded.float(), head.float(), False)
    for ours, plain, exact in zip(lean, full, reference, strict=True):
        assert (ours - exact).norm() <= (plain - exact).norm() + 1e-7


def test_under_autocast_the_loss_is_the_one_of_the_full_logits(family):
    model = family.build()
    batch = family.training_batch(ROWS, TARGETS)
    with torch.autocast("cpu", torch.bfloat16):
        full = step(model, batch, return_logits=True)
        lean = step(model, batch, return_logits=False)
    torch.testing.assert_close(lean, full, rtol=0.05, atol=0.05)


def test_a_frozen_head_costs_no_gradient(family):
    model = family.build(tie_word_embeddings=False).train()
    model.lm_head.requires_grad_(False)
    batch = family.training_batch(ROWS, TARGETS)
    torch.testing.assert_close(step(model, batch), step(model, batch, return_logits=True), **EXACT)
    assert model.lm_head.weight.grad is None


def test_a_head_that_is_more_than_its_weight_is_called(family):
    """Adapters, quantisers, offloading: what they add must not be left out."""
    batch = family.training_batch(ROWS, TARGETS)
    model = family.build().train()
    handle = model.lm_head.register_forward_hook(lambda module, inputs, logits: logits * 2)
    hooked = model(**batch)
    handle.remove()
    assert hooked.logits is not None
    assert hooked.loss != model(**batch).loss

    class Adapted(nn.Linear):
        def forward(self, states):
            return super().forward(states) * 2

    adapted = Adapted(*model.lm_head.weight.shape[::-1], bias=model.lm_head.bias is not None)
    adapted.load_state_dict(model.lm_head.state_dict())
    model.lm_head = adapted
    torch.testing.assert_close(model(**batch).loss, hooked.loss)


def test_a_loss_of_the_users_own_gets_logits(family):
    model = family.build().train()
    model.loss_function = lambda logits, labels, **kwargs: logits.sum()
    output = model(**family.training_batch(ROWS, TARGETS))
    torch.testing.assert_close(output.loss, output.logits.sum())


def test_the_backward_pass_cannot_be_gone_twice_unnoticed():
    model = DECODER.build().train()
    loss = model(**DECODER.training_batch(ROWS)).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_copy_that_came_with_a_checkpoint_works_beside_the_package(tmp_path, monkeypatch):
    shutil.copytree(Path(losses.__file__).parent, tmp_path / "another_copy")
    monkeypatch.syspath_prepend(tmp_path)
    copy = importlib.import_module("another_copy.losses")
    states, head, labels = torch.randn(5, 4), nn.Linear(4, 7), torch.tensor([1, 2, -100, 3, 6])
    expected = losses.language_model_loss(head(states), labels)
    for module in (losses, copy):
        actual = module.language_model_loss(module.Unprojected(states, head), labels)
        torch.testing.assert_close(actual, expected)


@decoder_first
def test_compiled_training_is_one_graph_for_all_lengths(family):
    """The second length makes the compiler generalise; no later one makes it start again."""
    torch._dynamo.reset()
    model = build_for_graphs(family, label_smoothing=0.1).train()
    graphs = 0

    def count(graph, inputs):
        nonlocal graphs
        graphs += 1
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, backend=count)
    for length in (9, 12, 15):
        rows = random_rows([length, length])
        batch = family.training_batch(rows, rows)
        torch.testing.assert_close(step(compiled, batch)[0], step(model, batch)[0], **EXACT)
    assert graphs <= 2
    torch._dynamo.reset()
