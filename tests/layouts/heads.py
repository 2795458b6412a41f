"""What is trained: every class of a family with a small configuration, and the batches it reads."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

import hf_tformer as ours
from hf_tformer.testing.families import Family
from support.families import DECODER, ENCODER, IGNORED, MIXTURE, SEQ2SEQ, pad, random_rows

# Four processes can share the heads. They cannot halve the vocabulary, and quarter neither the
# hidden sizes nor the MLP: one of them has less than the others.
SIZES = {"num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 46}
SIZES |= {"hidden_size": 38, "mlp_type": "gated", "qk_norm": True, "num_labels": 3}
ROWS = (9, 4, 7, 8, 3, 5, 9, 6)  # the lengths of the texts of a batch
BATCHES = 4


@dataclass
class Head:
    """A class, and how it is asked: `batch` makes one of lengths and a seed.

    Its loss is a mean over as many labels as `count` says; `divides` says that it takes that number
    as num_items_in_batch.
    """

    name: str
    family: Family
    model_class: type
    batch: Callable
    count: Callable
    divides: bool = False
    changes: dict = field(default_factory=dict)

    def build(self, **changes):
        changes = {**SIZES, **self.changes, **changes}
        return self.family.build(None, self.model_class, **changes).train()

    def batches(self, lengths=ROWS):
        return [self.batch(self.family, lengths, seed) for seed in range(BATCHES)]

    def loss(self, model, inputs, whole):
        """What these rows add to the mean over all rows, which have `whole` labels."""
        if self.divides:
            return model(**inputs, num_items_in_batch=whole).loss
        return loss_of(model, inputs) * (self.count(self.family, inputs) / whole)


def loss_of(model, inputs):
    """A body has no loss of its own: it learns to give zeros at real tokens."""
    output = model(**inputs)
    if "last_hidden_state" not in output:
        return output.loss
    name = "decoder_attention_mask" if "decoder_attention_mask" in inputs else "attention_mask"
    return output.last_hidden_state[inputs[name].bool()].square().mean()


def words(family, lengths, seed):
    return family.training_batch(random_rows(lengths, seed=seed))


def count_words(family, batch):
    labels = family.shifted(batch["labels"][..., None], batch["labels"])[1]
    return int((labels != IGNORED).sum())


def texts(family, lengths, seed):
    ids, mask = pad(random_rows(lengths, seed=seed), "right")
    labels = torch.tensor([sum(row) % 3 for row in ids.tolist()])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def tokens(family, lengths, seed):
    """Each token has a class, but for every fifth."""
    ids, mask = pad(random_rows(lengths, seed=seed), "right")
    labels = (ids % 3).masked_fill((mask == 0) | (ids % 5 == 0), IGNORED)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def answers(family, lengths, seed):
    ids, mask = pad(random_rows(lengths, seed=seed), "right")
    places = {"start_positions": ids[:, 0] % mask.sum(-1), "end_positions": mask.sum(-1) - 1}
    return {"input_ids": ids, "attention_mask": mask, **places}


def unlabelled(family, lengths, seed):
    ids, mask = pad(random_rows(lengths, seed=seed), "right")
    return {"input_ids": ids, "attention_mask": mask}


def both_sides(family, lengths, seed):
    target, mask = pad(random_rows(lengths[::-1], seed=seed + 9), "right")
    target = {"decoder_input_ids": target, "decoder_attention_mask": mask}
    return {**unlabelled(family, lengths, seed), **target}


def count_rows(family, batch):
    return len(batch["input_ids"])


def count_labels(family, batch):
    return int((batch["labels"] != IGNORED).sum())


def count_tokens(family, batch):
    return int(batch.get("decoder_attention_mask", batch["attention_mask"]).sum())


EXPERTS = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24}
UNTIED = {"tie_word_embeddings": False}
WORDS = (words, count_words, True)
TEXTS, TOKENS = (texts, count_rows), (tokens, count_labels)
ANSWERS, BODY = (answers, count_rows), (unlabelled, count_tokens)

HEADS = (
    Head("tied words", DECODER, ours.TformerDecoderForCausalLM, *WORDS),
    Head("untied words", DECODER, ours.TformerDecoderForCausalLM, *WORDS, UNTIED),
    Head("texts", DECODER, ours.TformerDecoderForSequenceClassification, *TEXTS),
    Head("tokens", DECODER, ours.TformerDecoderForTokenClassification, *TOKENS),
    Head("answers", DECODER, ours.TformerDecoderForQuestionAnswering, *ANSWERS),
    Head("body", DECODER, ours.TformerDecoderModel, *BODY),
    Head("tied words", MIXTURE, ours.TformerMixtureForCausalLM, *WORDS, EXPERTS),
    Head("untied words", MIXTURE, ours.TformerMixtureForCausalLM, *WORDS, EXPERTS | UNTIED),
    Head("texts", MIXTURE, ours.TformerMixtureForSequenceClassification, *TEXTS, changes=EXPERTS),
    Head("tokens", MIXTURE, ours.TformerMixtureForTokenClassification, *TOKENS, changes=EXPERTS),
    Head("answers", MIXTURE, ours.TformerMixtureForQuestionAnswering, *ANSWERS, changes=EXPERTS),
    Head("body", MIXTURE, ours.TformerMixtureModel, *BODY, changes=EXPERTS),
    Head("tied words", SEQ2SEQ, ours.TformerSeq2SeqForConditionalGeneration, *WORDS),
    Head("untied words", SEQ2SEQ, ours.TformerSeq2SeqForConditionalGeneration, *WORDS, UNTIED),
    Head("body", SEQ2SEQ, ours.TformerSeq2SeqModel, both_sides, count_tokens),
    Head("reader", SEQ2SEQ, ours.TformerSeq2SeqEncoderModel, *BODY),
    Head("tied words", ENCODER, ours.TformerEncoderForMaskedLM, words, count_words, True),
    Head("untied words", ENCODER, ours.TformerEncoderForMaskedLM, *WORDS, UNTIED),
    Head("texts", ENCODER, ours.TformerEncoderForSequenceClassification, *TEXTS),
    Head("tokens", ENCODER, ours.TformerEncoderForTokenClassification, *TOKENS),
    Head("answers", ENCODER, ours.TformerEncoderForQuestionAnswering, *ANSWERS),
    Head("body", ENCODER, ours.TformerEncoderModel, *BODY),
)
by_name = {f"{head.family.name}, {head.name}": head for head in HEADS}
