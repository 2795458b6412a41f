"""What is chosen by timing: the function of a product, and the number of threads of a step."""

import pytest
import torch

from hf_tformer.fast import choices, products, threads
from hf_tformer.fast.threads import LONGEST, LOSS, Pace
from support.counting import left_padded, written

WEIGHT = torch.ones(128, 128)
# Calls of each function, until one is chosen: of quick functions, and of slow ones.
ALL, FEW = choices.TURN * choices.TURNS, choices.TURN


@pytest.fixture(autouse=True)
def nothing_chosen_yet(monkeypatch):
    monkeypatch.setattr(choices, "CHOICES", {})
    monkeypatch.setattr(choices, "TRIALS", {})


@pytest.fixture
def functions_that_take(monkeypatch):
    """Make functions that return their input after so many microseconds, and list their calls.

    Each takes the times in turn, and the last one ever after.
    """
    now, calls = [0.0], []
    monkeypatch.setattr(choices, "perf_counter", lambda: now[0])

    def function(name, times):
        def run(states):
            now[0] += times[min(calls.count(name), len(times) - 1)] / 1e6
            calls.append(name)
            return states

        return run

    def make(**times):
        return {name: function(name, times[name]) for name in times}, calls

    return make


def call_often(functions, weight=WEIGHT, tokens=4, count=3 * ALL):
    """Call a function as layers of one shape do; return the one that is chosen."""
    calls = choices.fastest(functions, weight, tokens)
    for _ in range(count):
        calls(torch.ones(1))
    return choices.fastest(functions, weight, tokens)


@pytest.mark.parametrize(("unit", "turns"), [(1, choices.TURNS), (1000, 1)])
def test_functions_take_turns_until_the_fastest_is_chosen(unit, turns, functions_that_take):
    times = {"linear": 9, "exchanged": 8, "onednn": 1}
    functions, calls = functions_that_take(**{name: [unit * t] for name, t in times.items()})
    assert call_often(functions) is functions["onednn"]
    one_round = [name for name in times for _ in range(choices.TURN)]
    assert calls[: len(one_round) * turns] == one_round * turns
    assert set(calls[len(one_round) * turns :]) <= {"onednn"}


def test_functions_are_compared_by_their_time_for_a_token(functions_that_take):
    """Prompts differ in length, and longer ones may meet the faster function."""
    functions, calls = functions_that_take(linear=[10], onednn=[15])
    multiply = choices.fastest(functions, WEIGHT, 64)
    for call in range(2 * ALL):
        is_second = call // choices.TURN % 2 == 1
        multiply(torch.ones(128 if is_second else 64))
    assert calls.count("onednn") == ALL
    assert choices.fastest(functions, WEIGHT, 64) is functions["onednn"]


def test_a_choice_holds_for_a_shape_a_type_a_few_tokens_and_a_number_of_threads(
    functions_that_take, two_threads
):
    functions, _ = functions_that_take(linear=[9], onednn=[1])
    call_often(functions)
    for tokens in (4, 5, 7):
        assert choices.fastest(functions, WEIGHT, tokens) is functions["onednn"]
    others = [(WEIGHT, 8), (WEIGHT, 3), (WEIGHT.repeat(1, 2), 4), (WEIGHT.double(), 4)]
    for weight, tokens in others:
        assert choices.fastest(functions, weight, tokens) not in functions.values()
    torch.set_num_threads(1)
    assert choices.fastest(functions, WEIGHT, 4) not in functions.values()


def test_layers_of_one_shape_share_a_trial_and_its_end(functions_that_take):
    functions, calls = functions_that_take(linear=[9], onednn=[1])
    layers = [choices.fastest(functions, WEIGHT, 4) for _ in range(2 * ALL)]
    for layer in layers:
        layer(torch.ones(1))
    assert calls.count("linear") == calls.count("onednn") == ALL
    for layer in layers:
        layer(torch.ones(1))
    assert calls[2 * ALL :] == ["onednn"] * 2 * ALL


@pytest.mark.parametrize(
    "times",
    [
        {"linear": [10], "onednn": [9.8]},
        {"linear": [90, 10], "onednn": [9.8]},  # the first call prepares
        {"linear": [10, 10, 10, 90] * ALL, "onednn": [9.8]},  # another process takes the cores
        {"linear": [10], "onednn": [20, 2, 20]},  # a lucky call
    ],
)
def test_torchs_own_function_stays_where_no_other_is_clearly_faster(times, functions_that_take):
    functions, _ = functions_that_take(**times)
    assert call_often(functions) is functions["linear"]


def test_nothing_is_timed_where_torch_is_to_be_deterministic_or_the_weight_is_tiny(
    functions_that_take,
):
    functions, _ = functions_that_take(linear=[3], vector=[1])
    assert choices.fastest(functions, WEIGHT[:9], 4) is functions["linear"]
    assert choices.fastest(functions, WEIGHT[:9], 1) is functions["vector"]
    torch.use_deterministic_algorithms(True)
    try:
        assert choices.fastest(functions, WEIGHT, 4) is functions["linear"]
        assert threads.pace_of(torch.nn.Identity(), 1) is None
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tokens", [1, 2, 9, 65])
def test_every_function_computes_the_same_product(tokens, dtype):
    weight = torch.randn(131, 127, dtype=dtype)
    states = torch.randn(tokens, 127, dtype=dtype)
    found = products.functions(weight, tokens)
    assert len(found) == 3 - (dtype == torch.float64)
    for function in found.values():
        product = function(states[0] if tokens == 1 else states)
        torch.testing.assert_close(
            product.reshape(-1), (states @ weight.t()).view(-1), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 9, 65])
def test_every_function_computes_the_same_layer_while_it_is_tried(tokens, bias):
    linear = torch.nn.Linear(129, 131, bias)
    states, total = torch.randn(tokens, 129), torch.randn(tokens, 131)
    if tokens == 1:
        states, total = states[0], total[0]
    multiply = products.linear_function(linear, tokens)
    add = products.adding_product(linear, tokens)
    with torch.no_grad():
        expected = linear(states)
        for _ in range(3 * ALL + 1):
            torch.testing.assert_close(multiply(states), expected, rtol=1e-4, atol=1e-5)
            added = add(total.clone(), states)
            torch.testing.assert_close(added, total + expected, rtol=1e-4, atol=1e-5)
    assert len(choices.CHOICES) == 2
    assert choices.TRIALS == {}


# Threads


def paced(seconds, pace, count):
    """Take so many steps, each as long as its number of threads says; return these numbers."""
    taken = []
    for _ in range(count):
        with pace.step():
            taken.append(torch.get_num_threads())
        pace.note(seconds[taken[-1]])
    return taken


def test_one_thread_takes_the_steps_where_it_is_faster(two_threads):
    taken = paced({1: 1.0, 2: 1.3}, Pace(2), 400)
    assert taken[:2] == [2, 2]
    assert taken[2:].count(2) <= 12
    assert torch.get_num_threads() == 2


def test_trials_of_a_slower_number_of_threads_cost_little(two_threads):
    taken = paced({1: 1.5, 2: 1.0}, Pace(2), 3000)
    assert 0 < 0.5 * taken.count(1) <= LOSS * 3000


def test_threads_that_wait_for_other_processes_are_rarely_tried(two_threads):
    """As measured beside two busy processes: 40 ms with one thread, a second with two."""
    pace = Pace(2)
    taken = paced({1: 0.04, 2: 1.0}, pace, 1000)
    assert pace.threads == 1
    assert taken.count(2) <= 2 + 2
    assert taken[-900:].count(2) <= 1


def test_the_cores_may_be_taken_and_given_back(two_threads):
    pace = Pace(2)
    paced({1: 1.6, 2: 1.0}, pace, 2000)
    assert pace.threads == 2
    busy = paced({1: 2.0, 2: 50.0}, pace, 100)
    assert pace.threads == 1
    assert busy.count(2) <= 3
    paced({1: 1.6, 2: 1.0}, pace, 8 * LONGEST)
    assert pace.threads == 2


def test_one_slow_step_does_not_decide_for_long(two_threads):
    pace, idle = Pace(2), {1: 1.6, 2: 1.0}
    paced(idle, pace, 200)
    paced({1: 50.0, 2: 50.0}, pace, 1)
    assert paced(idle, pace, 200).count(1) <= 40
    assert pace.threads == 2


def test_many_threads_are_halved_while_that_is_faster(monkeypatch):
    before = torch.get_num_threads()
    now = [16]
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    pace = Pace(16)
    paced({1: 4.0, 2: 2.5, 4: 2.0, 8: 3.0, 16: 5.0}, pace, 500)
    assert pace.threads == 4
    assert now == [16]
    monkeypatch.undo()
    assert torch.get_num_threads() == before


def test_the_threads_are_given_back_after_an_error(two_threads):
    pace = Pace(2)
    pace.threads = 1
    with pytest.raises(KeyError), pace.step():
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("beams", [1, 2])
def test_a_text_is_the_same_while_the_number_of_threads_changes(
    family, beams, two_threads, monkeypatch
):
    """By a clock that runs only with two threads: one thread is faster."""
    seen = set()

    def clock():
        seen.add(torch.get_num_threads())
        clock.now += torch.get_num_threads() - 0.5
        return clock.now

    clock.now = 0.0
    monkeypatch.setattr(threads, "perf_counter", clock)
    model = family.build()
    options = {**left_padded([9, 4]), "max_new_tokens": 50, "num_beams": beams}
    text, taken = written(model, **options)
    assert taken > 10
    assert seen == {1, 2}
    assert torch.get_num_threads() == 2
    assert 1 in {pace.threads for pace in threads.PACES[model.get_decoder()].values()}
    assert torch.equal(text, written(model, plain=True, **options)[0])
