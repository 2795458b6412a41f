"""Random models on random batches keep every promise, and a promise that is broken is noticed."""

import pytest
from hypothesis import Phase

from hf_tformer import fast, limits
from hf_tformer.fast import losses as fused
from hf_tformer.fast import passes
from hf_tformer.model import modeling_decoder, modeling_encoder
from hf_tformer.testing import simulated_flash

from .building import by_name
from .cases import FAMILIES
from .configurations import DEPENDENT, table
from .promises import PROMISES
from .running import Faults, run

# Cases of each promise, always the same ones; `make fuzz` tries others.
SHARE = {"alone_text": 20, "converted": 15, "refused": 100, "configuration_file": 150}


@pytest.mark.parametrize("promise", PROMISES)
def test_random_models_keep_the_promise(promise):
    faults = Faults()
    run(promise, SHARE.get(promise, 30), seed=0, faults=faults)
    assert not faults.found, faults.found[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_of_a_configuration_is_drawn(name):
    family = by_name[name].config_class
    inherited = family.__mro__[2].__dataclass_fields__
    fields = set(family.__dataclass_fields__) - set(inherited) | {"format_version"}
    assert fields == {*table(name), *DEPENDENT["common"], *DEPENDENT[name]}


def attend_wrongly(attend):
    def attend_with_another_scale(query, key, value, softmax_scale, *rest):
        return attend(query, key, value, 1.01 * softmax_scale, *rest)

    return attend_with_another_scale


def forget_padding(count_positions):
    return lambda mask, *rest: count_positions(None, *rest)


def check_nothing(check_keys):
    return lambda config, kwargs: None


def smooth_more(loss):
    def loss_smoothed_more(*args):
        *first, smoothing, z_loss = args
        return loss(*first, 1.1 * smoothing, z_loss)

    return loss_smoothed_more


def see_further(layer_window):
    def window_and_one_more(config, layer_idx):
        window = layer_window(config, layer_idx)
        return None if window is None else window + 1

    return window_and_one_more


def forget_documents(find_packed_sequence_indices):
    return lambda *args: None


FAULTS = {
    "backend": (simulated_flash, "attend", attend_wrongly),
    "alone": (modeling_decoder, "count_positions", forget_padding),
    "configuration_file": (limits, "check_keys", check_nothing),
    "window": (modeling_encoder, "layer_window", see_further),
    "packed": (passes, "find_packed_sequence_indices", forget_documents),
    "lean_loss": (fused, "turn_into_gradients", smooth_more),
}


@pytest.mark.parametrize("promise", FAULTS)
def test_a_fault_that_was_planted_is_found(promise, monkeypatch):
    fast.enable()  # one of the faults lies there
    module, name, wrong = FAULTS[promise]
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    faults = Faults()
    run(promise, 200, seed=0, faults=faults, phases=[Phase.generate])
    assert faults.of(promise) == 1
