"""The encoder-decoder family computes what Marian, BART and its kin compute, given the weights."""

from dataclasses import replace

import pytest
import torch
from parity import Case, assert_parity, random_ids
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
)

from hf_tformer import TformerSeq2SeqConfig, TformerSeq2SeqForConditionalGeneration

SOURCE_LENGTHS = (11, 5, 8)  # of the rows in a batch
TARGET_LENGTHS = (4, 7, 6)

# Their embeddings keep the row of the padding token from learning, ours do not. So no padding token
# may be read here where it counts: decoding starts from another one.
PAD, START, END = 0, 1, 2
TOKENS = {"pad_token_id": PAD, "decoder_start_token_id": START, "eos_token_id": END}
COMMON = {
    "vocab_size": 101,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "bos_token_id": None,
    **TOKENS,
}
OURS = (TformerSeq2SeqConfig, TformerSeq2SeqForConditionalGeneration)


def sizes(hidden_size, heads):
    """The sizes in their words and in ours; theirs could differ between the stacks."""
    theirs = {
        "d_model": hidden_size,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
    }
    ours = {"hidden_size": hidden_size, "intermediate_size": 37, "num_attention_heads": heads}
    return theirs, ours


def marian(hidden_act="swish", hidden_size=30, heads=6, theirs=None, ours=None, **options):
    their_sizes, our_sizes = sizes(hidden_size, heads)
    return Case(
        (MarianConfig, MarianMTModel),
        OURS,
        {**COMMON, "scale_embedding": True, "max_position_embeddings": 13, **options},
        theirs={**their_sizes, "activation_function": hidden_act, **(theirs or {})},
        ours={
            **our_sizes,
            "hidden_act": hidden_act,
            "sinusoidal_layout": "halves",
            "lm_head_bias": True,
            **(ours or {}),
        },
    )


def bart(classes=(BartConfig, BartForConditionalGeneration), ours=None, **options):
    their_sizes, our_sizes = sizes(hidden_size=30, heads=6)
    return Case(
        classes,
        OURS,
        {**COMMON, "scale_embedding": False, "max_position_embeddings": 13, **options},
        theirs={**their_sizes, "activation_function": "gelu"},
        ours={
            **our_sizes,
            "hidden_act": "gelu",
            "position_embedding_type": "learned",
            "embedding_norm": True,
            "lm_head_bias": True,
            **(ours or {}),
        },
    )


def mbart(ours=None, **options):
    """BART with the norms first, and one more at the end of each stack."""
    ours = {"norm_position": "pre", **(ours or {})}
    return bart((MBartConfig, MBartForConditionalGeneration), ours, **options)


def pegasus(hidden_size=30, heads=6, ours=None, **options):
    """Marian with the norms first, and one more at the end of each stack."""
    case = marian("gelu", hidden_size, heads, ours={"norm_position": "pre", **(ours or {})})
    classes = (PegasusConfig, PegasusForConditionalGeneration)
    return replace(case, their_classes=classes, both={**case.both, **options})


def plbart(**options):
    return bart((PLBartConfig, PLBartForConditionalGeneration), **options)


def blenderbot(ours=None, **options):
    """mBART without a norm after the embeddings, its positions from the first row on."""
    ours = {"norm_position": "pre", "embedding_norm": False, **(ours or {})}
    return bart((BlenderbotConfig, BlenderbotForConditionalGeneration), ours, **options)


def m2m_100(ours=None, **options):
    """mBART's layers behind sinusoids that begin at the id of padding; the head has no bias."""
    sinusoids = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "fairseq"}
    ours = {**sinusoids, "norm_position": "pre", "embedding_norm": False, "lm_head_bias": False} | (
        ours or {}
    )
    return bart((M2M100Config, M2M100ForConditionalGeneration), ours, **options)


# Without tying, their three tables and the output projection are four tensors.
UNTIED = {"share_encoder_decoder_embeddings": False}
TWO_VOCABULARIES = {
    "theirs": {"vocab_size": 113, "decoder_vocab_size": 101},
    "ours": {"source_vocab_size": 113},
    "share_encoder_decoder_embeddings": False,
}

CASES = {
    "marian": marian(),
    "marian gelu": marian("gelu"),
    "marian relu": marian("relu"),
    "marian odd width": marian(hidden_size=15, heads=3),
    "marian unscaled embeddings": marian(scale_embedding=False),
    "marian two vocabularies": marian(**TWO_VOCABULARIES),
    "marian two vocabularies untied": marian(**TWO_VOCABULARIES, tie_word_embeddings=False),
    "marian untied": marian(ours=UNTIED, tie_word_embeddings=False),
    "bart": bart(),
    "bart scaled embeddings": bart(scale_embedding=True),
    "bart untied": bart(ours=UNTIED, tie_word_embeddings=False),
    "mbart": mbart(),
    "mbart scaled untied": mbart(UNTIED, scale_embedding=True, tie_word_embeddings=False),
    "pegasus": pegasus(),
    "pegasus odd width untied": pegasus(15, 3, UNTIED, tie_word_embeddings=False),
    "plbart": plbart(scale_embedding=True),
    "plbart untied": plbart(ours=UNTIED, tie_word_embeddings=False),
    "blenderbot": blenderbot(scale_embedding=True),
    "m2m_100": m2m_100(scale_embedding=True),
    "m2m_100 untied": m2m_100(UNTIED, tie_word_embeddings=False),
    "blenderbot untied": blenderbot(UNTIED, tie_word_embeddings=False),
}


def shifted(labels):
    """What the decoder reads when it is to write `labels`."""
    return torch.cat((torch.full((len(labels), 1), START), labels[:, :-1]), dim=1)


def even_batch():
    source, labels = random_ids(3, max(SOURCE_LENGTHS)), random_ids(3, max(TARGET_LENGTHS), seed=1)
    return {"input_ids": source, "decoder_input_ids": shifted(labels), "labels": labels}


def right_padded_batch():
    batch = even_batch()
    source_mask, target_mask = (
        (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        for lengths in (SOURCE_LENGTHS, TARGET_LENGTHS)
    )
    return {
        "input_ids": batch["input_ids"].masked_fill(source_mask == 0, PAD),
        "attention_mask": source_mask,
        "decoder_input_ids": batch["decoder_input_ids"].masked_fill(target_mask == 0, PAD),
        "decoder_attention_mask": target_mask,
        "labels": batch["labels"].masked_fill(target_mask == 0, -100),
    }


@pytest.fixture(params=["eager", "sdpa"])
def backend(request):
    return request.param


@pytest.fixture(params=CASES)
def pair(request, backend):
    return CASES[request.param].build(backend)


def test_an_even_batch_scores_and_trains_as_in_transformers(pair):
    assert_parity(*pair, even_batch())


def test_a_right_padded_batch_scores_and_trains_as_in_transformers(pair):
    assert_parity(*pair, right_padded_batch())


@pytest.mark.parametrize("case", ["marian", "bart"])
def test_labels_alone_are_read_as_transformers_reads_them(case):
    batch = right_padded_batch()
    del batch["decoder_input_ids"], batch["decoder_attention_mask"]
    ours, theirs = (model(**batch) for model in CASES[case].build("sdpa"))
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-4, atol=1e-5)
