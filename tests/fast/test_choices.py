"""What is chosen by timing: the function of a product, and the number of threads of a step."""

import time

import pytest
import torch

from hf_tformer.fast import choices, products, threads
from hf_tformer.fast.threads import LONGEST, LOSS, Pace
from support.counting import left_padded, written

WEIGHT = torch.ones(128, 128)


@pytest.fixture(autouse=True)
def nothing_chosen_yet(monkeypatch):
    monkeypatch.setattr(choices, "CHOICES", {})


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def functions_that_take(**milliseconds):
    """Functions that return their input after so long, and the calls of them."""
    calls = []

    def function(name):
        def run(states):
            calls.append(name)
            time.sleep(milliseconds[name] / 1000)
            return states

        return run

    return (lambda weight, tokens: {name: function(name) for name in milliseconds}), calls


def test_the_fastest_function_is_chosen_once_for_each_shape_and_number_of_threads(two_threads):
    functions, calls = functions_that_take(linear=9, exchanged=9, onednn=1)
    assert choices.fastest(functions, WEIGHT, 4) == "onednn"
    timed = len(calls)
    for tokens in (4, 5, 7):
        assert choices.fastest(functions, WEIGHT, tokens) == "onednn"
    assert len(calls) == timed
    for other in (WEIGHT.repeat(1, 2), WEIGHT.double()):
        choices.fastest(functions, other, 4)
    torch.set_num_threads(1)
    choices.fastest(functions, WEIGHT, 4)
    assert len(calls) == 4 * timed


def test_torchs_own_function_stays_where_no_other_is_clearly_faster():
    functions, _ = functions_that_take(linear=10, onednn=9.8)
    assert choices.fastest(functions, WEIGHT, 4) == "linear"


def test_nothing_is_timed_where_torch_is_to_be_deterministic_or_the_weight_is_tiny():
    functions, calls = functions_that_take(linear=3, onednn=1)
    assert choices.fastest(functions, WEIGHT[:9], 4) == "linear"
    torch.use_deterministic_algorithms(True)
    try:
        assert choices.fastest(functions, WEIGHT, 4) == "linear"
        assert threads.pace_of(torch.nn.Identity(), 1) is None
    finally:
        torch.use_deterministic_algorithms(False)
    assert calls == []


def test_a_part_of_a_large_weight_is_timed_with_some_of_many_tokens(monkeypatch):
    seen = []

    def functions(weight, tokens):
        seen.append((weight.numel(), tokens))
        return {"linear": lambda states: states, "onednn": lambda states: states}

    choices.fastest(functions, torch.empty(2**20, 1).expand(-1, 64), 5000)
    assert max(numbers for numbers, _ in seen[1:]) <= choices.PART
    assert {tokens for _, tokens in seen} == {choices.MANY}


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


@pytest.mark.parametrize(("tokens", "size"), [(1, 256), (1, 128), (16, 256)])
def test_large_weights_of_single_tokens_are_timed_outside_of_caches(tokens, size, two_threads):
    """With a weight that stays in a cache, other functions win than those that win in a step."""
    read = []

    def functions(weight, tokens):
        return {"linear": lambda states: read.append(weight.data_ptr()) or states @ weight.t()}

    choices.fastest(functions, torch.ones(size, size), tokens)
    is_large = (tokens, size) == (1, 256)
    assert len(set(read)) * 4 * size**2 >= choices.MEMORY if is_large else len(set(read)) == 1


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
