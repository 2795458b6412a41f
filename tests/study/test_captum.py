"""captum divides the score of a class among the tokens: the parts add up to the whole."""

import pytest
import torch

import hf_tformer
from support.families import DECODER, ENCODER

pytestmark = pytest.mark.study

IDS, MASK = torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([[1, 1, 1, 1, 1, 0]])
BASELINE = torch.tensor([[3, 9, 9, 9, 9, 8]])
CLASS = 1
HEADS = (
    (DECODER, hf_tformer.TformerDecoderForSequenceClassification),
    (ENCODER, hf_tformer.TformerEncoderForSequenceClassification),
)


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_the_parts_of_the_tokens_add_up(family, head):
    from captum.attr import LayerIntegratedGradients

    model = family.build(model_class=head, num_labels=3)

    def scores(ids, mask):
        return model(input_ids=ids, attention_mask=mask).logits

    method = LayerIntegratedGradients(scores, model.get_input_embeddings())
    parts, missing = method.attribute(
        IDS,
        baselines=BASELINE,
        additional_forward_args=(MASK,),
        target=CLASS,
        n_steps=400,
        return_convergence_delta=True,
    )
    with torch.no_grad():
        difference = (scores(IDS, MASK) - scores(BASELINE, MASK))[0, CLASS]
    assert difference.abs() > 0.1
    torch.testing.assert_close(parts.sum(), difference, rtol=0, atol=0.01 * difference.abs().item())
    assert missing.abs() < 0.01 * difference.abs()
    by_token = parts.sum(-1)[0]
    assert by_token[1:5].all()
    assert not by_token[[0, 5]].any()  # the same in both texts


def test_the_tokens_of_a_prompt_share_what_is_written(opened, folder):
    from captum.attr import FeatureAblation, LLMAttribution, TextTokenInput
    from transformers import AutoTokenizer

    model, tokenizer = opened(DECODER), AutoTokenizer.from_pretrained(folder(DECODER))
    tool = LLMAttribution(FeatureAblation(model), tokenizer)
    prompt = TextTokenInput("the cat sat", tokenizer)
    found = tool.attribute(prompt, target="on", use_cached_outputs=False)
    (target,) = tokenizer.convert_tokens_to_ids(found.output_tokens)
    ids = tokenizer("the cat sat", return_tensors="pt").input_ids

    def likelihood(ids):
        with torch.no_grad():
            return model(ids).logits[0, -1].log_softmax(-1)[target]

    without = [likelihood(ids.index_fill(1, torch.tensor([place]), 0)) for place in range(3)]
    torch.testing.assert_close(found.seq_attr, likelihood(ids) - torch.stack(without))
    with pytest.raises(ValueError, match="mask"):  # it is as long as the new tokens alone
        tool.attribute(prompt, target="on the mat")
