"""What a training will take: operations, memory, traffic and time, said before it begins."""

import json
import sys

import pytest
import torch
from accelerate.utils import calculate_maximum_sizes
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig

import hf_tformer
from hf_tformer.plan import training_flops
from hf_tformer.plan.command import main
from hf_tformer.plan.layouts import StagedLayout
from hf_tformer.plan.live import LiveBytes
from hf_tformer.plan.memory import Recipe, step_memory
from hf_tformer.plan.parameters import distinct_parameters
from hf_tformer.plan.skeleton import skeleton_of
from hf_tformer.plan.spans import measure_spans
from hf_tformer.training import enable_activation_checkpointing
from support.families import DECODER, DENSE, ENCODER, SEQ2SEQ
from support.plan_answers import assert_traffic

pytestmark = pytest.mark.usefixtures("warm_python")

ROWS, LENGTH = 2, 12


by_dense = pytest.mark.parametrize("family", DENSE, ids=lambda family: family.name)


@by_dense
@pytest.mark.parametrize("changes", [{}, {"mlp_type": "gated", "qk_norm": True}], ids=str)
def test_operations_are_those_that_torch_counts(family, changes):
    """Eager attention computes hidden keys too; one token of each row, source and target alike."""
    model = family.build("eager", **changes).train()
    ids = torch.randint(3, model.config.vocab_size, (ROWS, LENGTH))
    with FlopCounterMode(display=False) as counter:
        model(ids, labels=ids, return_logits=True).loss.backward()
    expected = ROWS * LENGTH * training_flops(model.config, LENGTH, sees_all=True)
    assert counter.get_total_flops() == expected


@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=lambda family: family.name)
@pytest.mark.parametrize("window", [None, 5])
def test_hidden_keys_are_not_counted(family, window):
    config = family.build(sliding_window=window).config
    kinds = getattr(config, "layer_types", ["full_attention"] * config.num_hidden_layers)
    reaches = [window if kind == "sliding_attention" else LENGTH for kind in kinds]
    hidden = sum(
        not (abs(query - key) < reach and (family is ENCODER or key <= query))
        for reach in reaches
        for query in range(LENGTH)
        for key in range(LENGTH)
    )
    saved = training_flops(config, LENGTH, sees_all=True) - training_flops(config, LENGTH)
    each = 12 * config.num_attention_heads * config.head_dim
    assert saved * LENGTH == pytest.approx(each * hidden)


def test_a_model_of_others_takes_what_ours_of_the_same_sizes_does():
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 101}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    theirs = LlamaConfig(**sizes, **heads)
    ours = hf_tformer.TformerDecoderConfig(**sizes, **heads)
    assert training_flops(theirs, 64) == training_flops(ours, 64)


@by_dense
def test_weights_are_those_that_accelerate_estimates(family):
    for is_tied in (True, False):
        model = skeleton_of(family.build(vocab_size=997, tie_word_embeddings=is_tied).config)
        estimated, _ = calculate_maximum_sizes(model)
        buffers = sum(buffer.nbytes for buffer in model.buffers())
        planned = sum(parameter.numbers() for parameter in distinct_parameters(model))
        assert 4 * planned == estimated - buffers


# Memory: of one process, whose tensors are counted while a real step runs.

CASES = {
    "plain": ({"return_logits_in_training": True}, {}),
    "eager": ({"return_logits_in_training": True, "dropout": 0.1}, {"backend": "eager"}),
    "tied": ({"tie_word_embeddings": True, "return_logits_in_training": True}, {}),
    "recomputed": ({"return_logits_in_training": True}, {"is_checkpointed": True}),
    "lean": ({}, {"has_all_logits": False}),
    "in two parts": ({"return_logits_in_training": True}, {"parts": 2}),
}


OF_OTHERS = [(ENCODER, "plain"), (SEQ2SEQ, "recomputed")]


@pytest.mark.parametrize(
    ("family", "name"),
    [*((DECODER, name) for name in CASES), *OF_OTHERS],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_step_takes_the_memory_that_was_planned(family, name):
    changes, options = CASES[name]
    fields = {"vocab_size": 997, "tie_word_embeddings": False, "qk_norm": True, **changes}
    config = deeper(family, fields)
    recipe = Recipe(64, 4, precision="float32", **{"has_all_logits": True, **options})
    layout = StagedLayout()
    spans = measure_spans(config, recipe.one_pass(1, is_sharded=False))
    planned = step_memory(skeleton_of(config), spans, layout, recipe)
    assert live_peak(family, config, recipe) == pytest.approx(planned.peak, rel=0.15)


def deeper(family, fields):
    """Five layers in each stack, so that the plan has to multiply what it measured."""
    config = family.build(**fields).config.to_dict()
    depths = ("num_hidden_layers", "encoder_layers", "decoder_layers")
    config |= {name: 5 for name in depths if name in config}
    config.pop("layer_types", None)
    return family.config_class.from_dict(config)


def live_peak(family, config, recipe):
    """The most bytes of tensors in a real step, weights and AdamW's moments among them."""
    model = family.model_class._from_config(config, attn_implementation=recipe.backend).train()
    if recipe.is_checkpointed:
        enable_activation_checkpointing(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    ids = torch.randint(3, config.vocab_size, (recipe.rows, recipe.row_length))
    with LiveBytes(model.parameters()) as memory:
        for _ in range(2):
            memory.mark()
            for _ in range(recipe.parts):
                model(ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return memory.peak + sum(parameter.nbytes for parameter in model.parameters())


# Traffic and sizes: of torch's own collectives, in a group of processes that are not there.


def test_bytes_and_sizes_are_those_of_the_real_layouts():
    cases = [
        (1, 4, 2, True, True, "decoder", True),
        (2, 4, 1, False, True, "encoder", False),
        (1, 8, 1, False, False, "seq2seq", True),
    ]
    assert_traffic(cases, [sys.executable])


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    fields = {"num_hidden_layers": 4, "num_key_value_heads": 1, "tie_word_embeddings": False}
    DECODER.build(**fields).config.save_pretrained(place)
    return place


def plan(folder, *options, capsys):
    words = ["--devices", "2", "--memory", "1", "--tokens", "32", *options]
    status = main([str(folder), *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_names_the_fastest_layout_first(folder, capsys):
    status, out, _ = plan(folder, "--json", capsys=capsys)
    layouts = json.loads(out)["layouts"]
    fitting = [found for found in layouts if found["fits"]]
    assert status == 0
    assert len(fitting) == 3
    assert [found["seconds"] for found in fitting] == sorted(f["seconds"] for f in fitting)
    assert not any(found["fits"] for found in layouts[len(fitting) :])
    _, table, _ = plan(folder / "config.json", capsys=capsys)
    places = [table.index(found["name"]) for found in fitting]
    assert places == sorted(places)


def test_a_layout_that_cannot_be_says_why(folder, capsys):
    status, out, _ = plan(folder, "--memory", "0.0001", capsys=capsys)
    assert status == 1
    assert "DDP 2: a device needs 0.00" in out
    assert "and has 0.0001" in out
    assert "TP 2: num_key_value_heads is 1, which 2 " in out


def test_checkpointing_is_chosen_where_activations_do_not_fit(folder, capsys):
    _, out, _ = plan(folder, "--json", capsys=capsys)
    layouts = {found["name"]: found for found in json.loads(out)["layouts"]}
    peak = layouts["FSDP2 2"]["memory"]["peak"]
    _, out, _ = plan(folder, "--json", "--memory", str((peak - 1) / 1e9), capsys=capsys)
    found = {found["name"]: found for found in json.loads(out)["layouts"]}["FSDP2 2"]
    assert found["recipe"]["is_checkpointed"]
    assert found["fits"]
    assert found["seconds"] >= layouts["FSDP2 2"]["seconds"]


def test_a_model_of_others_is_planned(tmp_path, capsys):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 64, "num_hidden_layers": 4}
    LlamaConfig(**sizes, num_attention_heads=2).save_pretrained(tmp_path)
    status, out, _ = plan(tmp_path, capsys=capsys)
    assert status == 0
    assert "TP 2" in out.partition("not possible")[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokens", "0"], "--tokens is 0: give more than 0"),
        (["--utilisation", "2"], "--utilisation is 2: give a share between 0 and 1"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(folder, options, words, capsys):
    status, _, err = plan(folder, *options, capsys=capsys)
    assert status == 1
    assert words in err


def test_a_file_that_is_not_there_is_refused(tmp_path, capsys):
    status, _, err = plan(tmp_path / "config.json", capsys=capsys)
    assert status == 1
    assert "there is no file" in err
