"""Positions: the formulas, and that nothing on the way to a loaded model spoils them."""

import math

import pytest
import torch

from hf_tformer.model.attention import rotate
from hf_tformer.model.layer_types import LAYER_TYPES
from hf_tformer.model.positions import RotaryEmbedding, SinusoidalPositions, count_positions
from support.families import DECODER, DECODERS, SEQ2SEQ

ROTARY = {"position_embedding_type": "rotary"}


def test_sinusoids_follow_the_formula_of_the_paper():
    """Also at the place where a figure of a teaching text shows sin(0.01) instead of sin(0.1)."""
    table = SinusoidalPositions(8, "interleaved")(torch.zeros(1, 50, 8), torch.arange(50)[None])[0]
    for position in (0, 1, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)
    assert table[1, 2].item() == pytest.approx(math.sin(0.1), abs=1e-6)


def test_the_two_layouts_of_sinusoids_hold_the_same_numbers():
    ids = torch.arange(9)[None]
    interleaved, halves = (
        SinusoidalPositions(7, layout)(torch.zeros(1, 9, 7), ids)
        for layout in ("interleaved", "halves")
    )
    torch.testing.assert_close(interleaved[..., 0::2], halves[..., :4])
    torch.testing.assert_close(interleaved[..., 1::2], halves[..., 4:])


def test_sinusoids_are_computed_in_float32_whatever_the_model_runs_in():
    ids = torch.arange(3000)[None]
    exact = SinusoidalPositions(16, "interleaved")(torch.zeros(1, 3000, 16), ids)
    rounded = SinusoidalPositions(16, "interleaved")(
        torch.zeros(1, 3000, 16, dtype=torch.bfloat16), ids
    )
    assert torch.equal(rounded, exact.bfloat16())


def test_rotation_keeps_lengths_and_depends_on_distance_alone():
    config = DECODER.config()
    rotary = RotaryEmbedding(config)
    query, key = torch.randn(1, 1, 1, 10), torch.randn(1, 1, 1, 10)

    def product(i, j):
        at_i, at_j = (rotary(query, torch.tensor([[position]])) for position in (i, j))
        return (rotate(query, key, *at_i)[0] * rotate(query, key, *at_j)[1]).sum()

    torch.testing.assert_close(product(9, 4), product(25, 20), rtol=1e-4, atol=1e-5)
    assert not torch.isclose(product(9, 4), product(9, 5))
    turned, _ = rotate(query, key, *rotary(query, torch.tensor([[7]])))
    torch.testing.assert_close(turned.norm(), query.norm())


def test_a_partial_rotation_leaves_the_rest_of_the_head_alone():
    config = DECODER.config(rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.4})
    cos, sin = RotaryEmbedding(config)(torch.zeros(1), torch.tensor([[3]]))
    state = torch.randn(1, 1, 1, 10)
    turned, _ = rotate(state, state, cos, sin)
    assert cos.shape[-1] == 4
    assert torch.equal(turned[..., 4:], state[..., 4:])
    assert not torch.equal(turned[..., :4], state[..., :4])


def test_what_tools_compute_with_the_tables_is_the_rotation():
    """q · cos + rotate_half(q) · sin, as interpretability tools spell it."""
    query, key = torch.randn(2, 3, 4, 10), torch.randn(2, 1, 4, 10)
    cos, sin = RotaryEmbedding(DECODER.config())(query, torch.arange(4)[None])
    for states, turned in zip((query, key), rotate(query, key, cos, sin), strict=True):
        first, second = states.chunk(2, dim=-1)
        expected = states * cos + torch.cat((-second, first), dim=-1) * sin
        torch.testing.assert_close(turned, expected)


@pytest.mark.parametrize(
    ("mask", "past", "expected"),
    [
        (None, 0, [[0, 1, 2]]),
        (None, 4, [[4, 5, 6]]),
        ([[0, 1, 1], [1, 1, 1]], 0, [[0, 0, 1], [0, 1, 2]]),
        ([[1, 1, 0]], 0, [[0, 1, 1]]),
        ([[0, 1, 1, 1, 1]], 2, [[1, 2, 3]]),
    ],
    ids=str,
)
def test_padding_does_not_count_as_a_position(mask, past, expected):
    mask = None if mask is None else torch.tensor(mask)
    assert count_positions(mask, 3, past, torch.device("cpu")).tolist() == expected


def exact_frequencies(config, name):
    """Of a buffer: an encoder has some for each kind of layer."""
    rope = config.rope_parameters
    rope = next((rope[kind] for kind in LAYER_TYPES if kind in name), rope)
    return 1.0 / rope["rope_theta"] ** (torch.arange(0, 10, 2) / 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("device_map", [None, "cpu"])
def test_frequencies_are_exact_after_loading_in_any_dtype(family, tmp_path, dtype, device_map):
    family.build(**ROTARY).save_pretrained(tmp_path)
    model = family.model_class.from_pretrained(tmp_path, dtype=dtype, device_map=device_map)
    buffers = {n: buffer for n, buffer in model.named_buffers() if n.endswith("inv_freq")}
    assert len(buffers) == (2 if family in DECODERS else 4)
    for name, buffer in buffers.items():
        assert buffer.dtype == torch.float32
        expected = exact_frequencies(model.config, name)
        torch.testing.assert_close(buffer, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("cast", ["bfloat16", "half", "to"])
def test_frequencies_stay_exact_when_the_model_is_cast(family, cast):
    model = family.build(**ROTARY)
    model = model.to(torch.bfloat16) if cast == "to" else getattr(model, cast)()
    assert next(model.parameters()).dtype != torch.float32
    for name, buffer in model.named_buffers():
        assert buffer.dtype == torch.float32, name
        expected = exact_frequencies(model.config, name)
        torch.testing.assert_close(buffer, expected, rtol=0, atol=1e-7)


def test_a_position_beyond_the_learned_table_is_refused_by_name(family):
    model = family.build(position_embedding_type="learned", max_position_embeddings=8)
    ids = torch.randint(3, 101, (1, 9))
    with pytest.raises(ValueError, match=r"position 8.*max_position_embeddings is 8"):
        model(ids, **family.target(ids[:, :3]))


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "none"])
def test_other_positions_have_no_end(family, positions):
    model = family.build(position_embedding_type=positions, max_position_embeddings=8)
    ids = torch.randint(3, 101, (1, 20))
    target = family.target(ids)
    assert torch.isfinite(model(ids, **target).logits).all()


def test_the_seed_without_positions_really_has_none():
    """One teaching text promises rotary positions, but its code applies none: order is then
    invisible to a token."""
    model = SEQ2SEQ.build(position_embedding_type="none")
    source = torch.tensor([[5, 6, 7, 8]])
    target = torch.tensor([[1, 9]])
    logits = [model(x, decoder_input_ids=target).logits for x in (source, source.flip(1))]
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-5)
