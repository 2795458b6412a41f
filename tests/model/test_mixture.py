"""A mixture of experts: which experts a token takes, what they add, how evenly they are used."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

import hf_tformer
from hf_tformer import TformerMixtureConfig, TformerMixtureForCausalLM
from hf_tformer.model.experts import MixtureMLP, Router, SharedMixtureMLP
from support.counting import counted_passes
from support.families import DECODER, MIXTURE, random_rows
from support.parity import randomise

CLOSE = {"rtol": 1e-4, "atol": 1e-6}
ROWS = random_rows([7, 4, 9])
SIZES = {"hidden_size": 32, "moe_intermediate_size": 24}  # which every implementation takes


def config(**fields):
    return MIXTURE.config(**fields)


def router(**fields):
    return randomise(Router(config(**fields)))


STATES = torch.randn(11, 36, generator=torch.Generator().manual_seed(3))


# By the formulas of the papers, one token at a time.


def test_a_token_takes_the_experts_whose_softmax_is_largest_and_their_weights_sum_to_one():
    mixed = router()
    logits, weights, experts = mixed(STATES)
    for token, state in enumerate(STATES):
        scores = (mixed.weight @ state).softmax(0)
        best = sorted(range(5), key=lambda expert: -scores[expert])[:2]
        assert experts[token].tolist() == best
        torch.testing.assert_close(weights[token], scores[best] / scores[best].sum(), **CLOSE)
        torch.testing.assert_close(logits[token], mixed.weight @ state, **CLOSE)


def test_a_correction_changes_who_is_chosen_and_not_the_weights():
    """As in GLM-4.5: sigmoids, corrected, of the best group alone, scaled."""
    fields = {"num_experts": 6, "n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5}
    mixed = router(**fields, scoring_func="sigmoid", router_bias=True)
    _, weights, experts = mixed(STATES)
    for token, state in enumerate(STATES):
        scores = (mixed.weight @ state).sigmoid()
        corrected = scores + mixed.correction.bias
        groups = sorted(range(3), key=lambda g: -corrected[2 * g : 2 * g + 2].sum())[:2]
        allowed = [expert for expert in range(6) if expert // 2 in groups]
        best = sorted(allowed, key=lambda expert: -corrected[expert])[:2]
        assert experts[token].tolist() == best
        expected = 2.5 * scores[best] / scores[best].sum()
        torch.testing.assert_close(weights[token], expected, **CLOSE)


def test_experts_add_what_each_computes_alone():
    mlp = randomise(SharedMixtureMLP(config(shared_expert_intermediate_size=20))).eval()
    mlp.experts.config._experts_implementation = "eager"
    _, weights, experts = mlp.router(STATES)
    expected = []
    for token, state in enumerate(STATES):
        total = mlp.shared_expert(state)
        for weight, expert in zip(weights[token], experts[token], strict=True):
            gate, up = (mlp.experts.gate_up_proj[expert] @ state).chunk(2)
            total = total + weight * (
                mlp.experts.down_proj[expert] @ (torch.nn.functional.silu(gate) * up)
            )
        expected.append(total)
    torch.testing.assert_close(mlp(STATES[None])[0], torch.stack(expected), **CLOSE)


# Implementations


@pytest.mark.parametrize("name", ["eager", "batched_mm", "grouped_mm"])
def test_every_implementation_computes_the_same(name, tmp_path):
    model = MIXTURE.build(**SIZES)
    model.set_experts_implementation("eager")
    expected = MIXTURE.logits(model, ROWS)
    model.save_pretrained(tmp_path)
    opened = MIXTURE.auto.from_pretrained(tmp_path, experts_implementation=name)
    assert opened.config._experts_implementation == name
    with hf_tformer.fast.disabled():
        torch.testing.assert_close(MIXTURE.logits(opened, ROWS), expected, **CLOSE)


def test_a_file_cannot_choose_an_implementation_that_downloads_a_kernel(tmp_path):
    MIXTURE.build().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    for name in ("sonicmoe", "deepgemm", "evil/repository", True, ["eager"]):
        path.write_text(json.dumps({**saved, "experts_implementation": name}))
        with pytest.raises(ValueError, match=r"experts_implementation is .*: choose one of eager"):
            MIXTURE.auto.from_pretrained(tmp_path)
    path.write_text(json.dumps({**saved, "experts_implementation": "batched_mm"}))
    assert MIXTURE.auto.from_pretrained(tmp_path).config._experts_implementation == "batched_mm"


@torch.no_grad()
def test_a_folder_in_float64_opens_with_experts_that_take_it(tmp_path):
    even = {"hidden_size": 16, "moe_intermediate_size": 8}
    model = MIXTURE.build(**even).double()
    model.set_experts_implementation("eager")
    model.save_pretrained(tmp_path)
    ids = torch.tensor([[3, 5, 4]])
    for options in ({}, {"dtype": torch.float64}):
        loaded = type(model).from_pretrained(tmp_path, **options).eval()
        assert loaded.config._experts_implementation == "eager"
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits)
    narrow = type(model).from_pretrained(tmp_path, dtype=torch.float32)
    assert narrow.config._experts_implementation == "grouped_mm"


def test_sizes_that_the_grouped_product_cannot_take_run_eagerly_by_default():
    assert MIXTURE.build().config._experts_implementation == "eager"
    assert MIXTURE.build(**SIZES).config._experts_implementation == "grouped_mm"


def test_a_decoder_that_was_asked_first_does_not_answer_for_the_mixture():
    DECODER.build().set_experts_implementation("batched_mm")  # transformers keeps its answer
    model = MIXTURE.build()
    model.set_experts_implementation("batched_mm")
    assert model.config._experts_implementation == "batched_mm"


def test_experts_of_somebody_else_are_called_and_not_read(monkeypatch):
    """What is registered by name may compute anything."""
    monkeypatch.setitem(
        ALL_EXPERTS_FUNCTIONS._global_mapping,
        "nothing",
        lambda experts, states, chosen, weights: torch.zeros_like(states),
    )
    model, ids = MIXTURE.build(**SIZES), torch.tensor(random_rows([6]))
    with torch.no_grad():
        before = model(ids).logits
        model.set_experts_implementation("nothing")
        with counted_passes("run_whole_sequences") as taken:
            after = model(ids).logits
    assert taken == []
    assert not torch.allclose(before, after)


# How evenly the experts are used


def balanced(**fields):
    return MIXTURE.build(**SIZES, router_aux_loss_coef=0.3, **fields)


def test_the_balance_is_smallest_where_all_experts_are_used_alike():
    """Even: the number of choices per token. All on the same experts: as many times as large."""
    model = MIXTURE.build(num_experts=4, mlp_only_layers=None, num_hidden_layers=1)
    ids = torch.tensor(random_rows([40]))
    model.model.layers[0].mlp.router.weight.data.zero_()
    even = model(ids, output_router_logits=True).aux_loss
    assert even.item() == pytest.approx(2)
    assert 2 < MIXTURE.build(num_experts=4)(ids, output_router_logits=True).aux_loss < 4


def test_the_balance_is_a_part_of_the_loss_and_names_its_weight():
    model = balanced()
    batch = MIXTURE.training_batch(ROWS)
    output = model(**batch, output_router_logits=True)
    model.config.router_aux_loss_coef = 0.0
    plain = model(**batch)
    torch.testing.assert_close(output.loss, plain.loss + 0.3 * output.aux_loss)
    assert plain.aux_loss is None
    assert plain.router_logits is None
    assert len(output.router_logits) == 1  # one layer of two has experts


def test_the_router_learns_from_the_balance_alone():
    model = balanced().train()
    model(**MIXTURE.training_batch(ROWS)).loss.backward()
    with_balance = model.model.layers[1].mlp.router.weight.grad.clone()
    model.zero_grad()
    model.config.router_aux_loss_coef = 0.0
    model(**MIXTURE.training_batch(ROWS)).loss.backward()
    assert not torch.allclose(with_balance, model.model.layers[1].mlp.router.weight.grad)


def test_a_step_in_two_parts_has_the_loss_of_a_whole_one():
    """Trainer adds the losses of the parts: the balance counts once, and not once for each."""
    model, batch = balanced(), MIXTURE.training_batch(ROWS)
    whole = {name: torch.cat((tensor, tensor)) for name, tensor in batch.items()}
    counted = int((whole["labels"][:, 1:] != -100).sum())
    parts = [model(**batch, num_items_in_batch=counted).loss for _ in range(2)]
    torch.testing.assert_close(sum(parts), model(**whole).loss)


def test_layers_that_are_computed_twice_have_the_same_balance_and_gradients():
    model, batch = balanced().train(), MIXTURE.training_batch(ROWS)

    def gradients():
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        return loss, [parameter.grad.clone() for parameter in model.parameters()]

    loss, expected = gradients()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    again, found = gradients()
    torch.testing.assert_close(again, loss)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


def test_reentrant_checkpointing_is_refused_where_the_balance_would_lose_its_gradients():
    model, batch = balanced().train(), MIXTURE.training_batch(ROWS)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match=r"use_reentrant=True drops .* use_reentrant=False"):
        model(**batch)
    model.config.router_aux_loss_coef = 0.0
    model(**batch, output_router_logits=True).loss.backward()


def test_a_model_in_which_no_layer_has_experts_has_no_balance():
    model = balanced(mlp_only_layers=[0, 1])
    assert not any(isinstance(module, MixtureMLP) for module in model.modules())
    output = model(**MIXTURE.training_batch(ROWS), output_router_logits=True)
    assert output.aux_loss is None


# Around it


def test_corrections_stay_exact_in_half_precision(tmp_path):
    MIXTURE.build(router_bias=True).save_pretrained(tmp_path)
    exact = MIXTURE.auto.from_pretrained(tmp_path)
    half = MIXTURE.auto.from_pretrained(tmp_path, dtype=torch.bfloat16)
    name = "model.layers.1.mlp.router.correction.bias"
    assert half.state_dict()[name].dtype == torch.float32
    assert torch.equal(half.state_dict()[name], exact.state_dict()[name])
    assert half.state_dict()["model.layers.1.mlp.router.weight"].dtype == torch.bfloat16


def test_adapters_reach_the_experts_by_the_names_of_their_weights():
    model = MIXTURE.build(**SIZES)
    model.set_experts_implementation("eager")
    plain = MIXTURE.logits(model, ROWS)
    names = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    options = {"target_modules": ["q_proj"], "target_parameters": names, "r": 2}
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options))
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        adapted(**MIXTURE.training_batch(ROWS)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    trained = MIXTURE.logits(adapted.eval(), ROWS)
    assert max((a - b).abs().max() for a, b in zip(trained, plain, strict=True)) > 1e-2
    merged = MIXTURE.logits(adapted.merge_and_unload(), ROWS)
    torch.testing.assert_close(merged, trained, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_with_experts_of_their_own_are_refused_by_name(engine, monkeypatch):
    """As it is where the engine is installed: here transformers would miss it first."""
    monkeypatch.setattr(
        PreTrainedModel, "_check_and_adjust_attn_implementation", lambda self, name, **_: name
    )
    fields = config()
    fields._attn_implementation = engine
    with pytest.raises(ValueError, match=rf"{engine} has experts of its own.*generate\(\)"):
        TformerMixtureForCausalLM(fields)


REFUSED = [
    ({"num_experts": 0}, "num_experts is 0: choose a whole number"),
    ({"num_experts_per_tok": 6}, "num_experts_per_tok is 6, but only 5 experts"),
    ({"num_experts": 6, "n_group": 3, "num_experts_per_tok": 3}, "only 2 experts can be chosen"),
    ({"n_group": 2}, r"num_experts \(5\) does not make n_group \(2\) equal groups"),
    ({"num_experts": 3, "n_group": 3}, "equal groups of at least 2"),
    ({"topk_group": 2}, r"topk_group is 2: choose at most n_group \(1\)"),
    ({"mlp_only_layers": [2]}, r"mlp_only_layers is \[2\]: give numbers of layers from 0 to 1"),
    ({"scoring_func": "tanh"}, "scoring_func is 'tanh': choose one of softmax, sigmoid"),
    ({"shared_expert_gate": True}, "shared_expert_gate is True, but there is no shared expert"),
    ({"mlp_type": "plain"}, "mlp_type is 'plain': choose one of gated"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_makes_no_mixture_is_refused_in_one_sentence(fields, words):
    with pytest.raises(ValueError, match=words):
        TformerMixtureConfig(**{**MIXTURE.sizes, **fields})


def test_the_defaults_make_a_model_that_answers():
    model = TformerMixtureForCausalLM(
        TformerMixtureConfig(hidden_size=64, num_hidden_layers=1, vocab_size=101)
    )
    assert sum(isinstance(module, MixtureMLP) for module in model.modules()) == 1
    assert model(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, 101)
