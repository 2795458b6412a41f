"""bertviz draws what our models attend to: their weights, beside their tokens."""

import json
import re

import pytest
import torch

from support.families import DECODER, ENCODER, SEQ2SEQ

pytestmark = pytest.mark.study

SOURCE, TARGET = ["the", "cat", "sat", "on"], ["to", "be", "or"]


def attentions(model, **inputs):
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


def drawn(html):
    """What the page was given to draw: (weights [layer, head, row, column], rows, columns)."""
    given = json.loads(re.search(r"const params = (\{.*?\});? //", html.data)[1])
    return [(torch.tensor(d["attn"]), d["left_text"], d["right_text"]) for d in given["attention"]]


def same(shown, weights, rows, columns):
    torch.testing.assert_close(shown[0], torch.cat(weights))
    assert shown[1:] == (rows, columns)


@pytest.mark.parametrize("view", ["head_view", "model_view"])
@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=lambda family: family.name)
def test_a_view_shows_the_weights_of_a_text(family, view, opened):
    import bertviz

    model = opened(family, "eager")
    weights = attentions(model, input_ids=torch.tensor([[3, 4, 5, 6]])).attentions
    (shown,) = drawn(getattr(bertviz, view)(weights, SOURCE, html_action="return"))
    same(shown, weights, SOURCE, SOURCE)


@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_a_view_shows_all_three_attentions_of_an_encoder_decoder(view, opened):
    import bertviz

    model = opened(SEQ2SEQ, "eager", encoder_layers=2)  # it shows as many of each as of the first
    inputs = {"input_ids": torch.tensor([[3, 4, 5, 6]])}
    outputs = attentions(model, **inputs, decoder_input_ids=torch.tensor([[1, 7, 8]]))
    html = getattr(bertviz, view)(
        encoder_attention=outputs.encoder_attentions,
        decoder_attention=outputs.decoder_attentions,
        cross_attention=outputs.cross_attentions,
        encoder_tokens=SOURCE,
        decoder_tokens=TARGET,
        html_action="return",
    )
    encoder, decoder, cross = drawn(html)
    same(encoder, outputs.encoder_attentions, SOURCE, SOURCE)
    same(decoder, outputs.decoder_attentions, TARGET, TARGET)
    same(cross, outputs.cross_attentions, TARGET, SOURCE)
