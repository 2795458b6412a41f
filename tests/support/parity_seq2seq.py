"""Pairs of an encoder-decoder of transformers and ours, and batches for both."""

from dataclasses import replace

import torch
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
    MT5Config,
    MT5ForConditionalGeneration,
    MvpConfig,
    MvpForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from hf_tformer import TformerSeq2SeqConfig, TformerSeq2SeqForConditionalGeneration
from support.parity import Case, random_ids

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


def mvp(**options):
    return bart((MvpConfig, MvpForConditionalGeneration), **options)


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


T5 = (T5Config, T5ForConditionalGeneration)
MT5 = (MT5Config, MT5ForConditionalGeneration)
UMT5 = (UMT5Config, UMT5ForConditionalGeneration)
T5_SIZES = {  # theirs → ours
    "d_model": "hidden_size",
    "d_kv": "head_dim",
    "d_ff": "intermediate_size",
    "num_heads": "num_attention_heads",
    "num_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
}


def t5(classes=T5, theirs=None, ours=None, sizes=(30, 7, 37, 3, 2, 3)):
    """`sizes` are in the order of T5_SIZES; both have a head of its own where ours says so."""
    config_class, model_class = classes
    is_untied = (ours or {}).get("tie_word_embeddings") is False
    return Case(
        (config_class, untied(model_class) if is_untied else model_class),
        OURS,
        {"vocab_size": 101, **TOKENS},
        theirs={**dict(zip(T5_SIZES, sizes, strict=True)), **(theirs or {})},
        ours={
            **dict(zip(T5_SIZES.values(), sizes, strict=True)),
            "bos_token_id": None,
            "position_embedding_type": "none",
            "score_bias": "relative_per_layer" if classes == UMT5 else "relative",
            "norm_type": "rmsnorm",
            "norm_position": "pre",
            **dict.fromkeys(("attention_bias", "attention_output_bias", "mlp_bias"), False),
            "attention_scale": 1.0,
            "scale_embedding": False,
            "logit_scale": 1.0 if classes == MT5 else sizes[0] ** -0.5,
            **(ours or {}),
        },
    )


def untied(model_class):
    return lambda config: with_own_head(model_class(config))


def with_own_head(model):
    """The model as if it were loaded from a file whose head is not the table."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    del model.all_tied_weights_keys["lm_head.weight"]
    return model


def gated(name):
    """The gate of an MLP in their words, and ours: what they call gelu there is gelu_new."""
    hidden_act = "gelu_new" if name == "gelu" else name
    return {"feed_forward_proj": f"gated-{name}"}, {"mlp_type": "gated", "hidden_act": hidden_act}


def flan(classes=T5, sizes=(15, 7, 37, 3, 2, 3)):
    """T5 v1.1 and what was made of it: a gate, a head of its own, nothing scaled."""
    theirs, ours = gated("gelu")
    theirs["tie_word_embeddings"] = False
    ours |= {"tie_word_embeddings": False, "logit_scale": 1.0}
    return t5(classes, theirs, ours, sizes)


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
    "mvp": mvp(),
    "plbart": plbart(scale_embedding=True),
    "plbart untied": plbart(ours=UNTIED, tie_word_embeddings=False),
    "blenderbot": blenderbot(scale_embedding=True),
    "m2m_100": m2m_100(scale_embedding=True),
    "m2m_100 untied": m2m_100(UNTIED, tie_word_embeddings=False),
    "blenderbot untied": blenderbot(UNTIED, tie_word_embeddings=False),
    "t5": t5(),
    "t5 flan": flan(),
    "t5 gelu deep encoder": t5(
        theirs={"feed_forward_proj": "gelu"}, ours={"hidden_act": "gelu"}, sizes=(11, 5, 8, 5, 3, 1)
    ),
    "t5 tied unscaled": t5(theirs={"tie_word_embeddings": False}, ours={"logit_scale": 1.0}),
    "t5 scaled head of its own": t5(ours={"tie_word_embeddings": False}),
    "t5 gated silu": t5(T5, *gated("silu")),
    "mt5": flan(MT5),
    "umt5": t5(UMT5, *gated("gelu")),
    "umt5 relu head of its own": t5(
        UMT5, {"feed_forward_proj": "relu"}, {"tie_word_embeddings": False}
    ),
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


def left_padded_source():
    """Those whose distances count places see the same whatever stands there."""
    batch = right_padded_batch()
    for name in ("input_ids", "attention_mask"):
        batch[name] = batch[name].flip(1)
    return batch
