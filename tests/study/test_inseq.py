"""inseq tells which tokens a written token rests on, of the model as it is."""

import pytest
import torch

from support.families import DECODER, SEQ2SEQ

pytestmark = pytest.mark.study

TEXT = "the cat sat"
WRITERS = [SEQ2SEQ, DECODER]
by_writers = pytest.mark.parametrize("family", WRITERS, ids=lambda family: family.name)


def attributed(model, method, tokenizer, **options):
    import inseq

    tool = inseq.load_model(model, method, tokenizer=tokenizer)
    settings = {"generation_args": {"max_new_tokens": 5}, "show_progress": False, **options}
    return tool.attribute(TEXT, **settings).sequence_attributions[0]


def ids_of(tokens, tokenizer):
    return torch.tensor([tokenizer.convert_tokens_to_ids([each.token for each in tokens])])


def read(family, model, found, tokenizer):
    """The model's own output on what inseq shows as read and written."""
    source, target = (ids_of(tokens, tokenizer) for tokens in (found.source, found.target))
    given = {"input_ids": target}
    if family is SEQ2SEQ:
        given = {"input_ids": source, "decoder_input_ids": target}
    with torch.no_grad():
        return target, model(**given, output_attentions=True)


@by_writers
@pytest.mark.parametrize("method", ["saliency", "integrated_gradients"])
def test_gradients_are_those_of_the_model_as_it_is(family, method, opened, tokenizer):
    """inseq gives embeddings: of an encoder-decoder that scales its own, they were scaled twice."""
    model = opened(family, "eager")
    found = attributed(model, method, tokenizer, step_scores=["logit"])
    assert [each.token for each in found.source] == tokenizer.tokenize(TEXT)
    target, output = read(family, model, found, tokenizer)
    first = found.attr_pos_start
    assert target[0, first:].tolist() == written(family, model, tokenizer)
    logits = output.logits[0, first - 1 : -1].gather(1, target[0, first:, None])[:, 0]
    torch.testing.assert_close(found.step_scores["logit"], logits, rtol=1e-4, atol=1e-4)
    parts = found.source_attributions if family is SEQ2SEQ else found.target_attributions
    assert parts.shape[:2] == (len(found.source if family is SEQ2SEQ else found.target), 5)
    assert parts[:first].abs().sum(-1).all()


def written(family, model, tokenizer):
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    tokens = model.generate(ids, max_new_tokens=5, do_sample=False)[0]
    return tokens[1 if family is SEQ2SEQ else ids.shape[1] :].tolist()


@by_writers
def test_attention_is_that_of_the_model(family, opened, tokenizer):
    model = opened(family, "eager")
    found = attributed(model, "attention", tokenizer)
    _, output = read(family, model, found, tokenizer)
    first = found.attr_pos_start
    if family is SEQ2SEQ:
        shown, weights = found.source_attributions, output.cross_attentions
    else:
        shown, weights = found.target_attributions, output.attentions
    weights = torch.stack(weights, dim=-1)[0].permute(2, 1, 3, 0)  # [key, query, layer, head]
    torch.testing.assert_close(shown.nan_to_num(), weights[:, first - 1 : -1])
