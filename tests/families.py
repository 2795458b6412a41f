"""One interface to both families, so that each promise is written once and kept by both.

Sizes are odd on purpose: three key heads, a head size that is not hidden / heads, a prime
vocabulary.
"""

from dataclasses import dataclass

import torch
from parity import randomise
from transformers import EncoderDecoderCache, StaticCache

import hf_tformer

BACKENDS = ("eager", "sdpa", "flash_attention_2")  # the last one simulated: see simulated_flash.py
PAD = 0


def pad(rows, side):
    """Lists of token ids → input_ids and attention_mask, padded on one side."""
    width = max(len(row) for row in rows)
    ids, mask = torch.full((len(rows), width), PAD), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def random_rows(lengths, seed=0, vocab_size=101):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocab_size, (n,), generator=generator).tolist() for n in lengths]


@dataclass
class Family:
    name: str
    config_class: type
    model_class: type
    base_class: type
    sizes: dict

    def config(self, **overrides):
        return self.config_class(**{**self.sizes, **overrides})

    def build(self, backend="sdpa", model_class=None, **overrides):
        model = randomise((model_class or self.model_class)(self.config(**overrides))).eval()
        model.config._attn_implementation = backend
        return model


class Decoder(Family):
    """A prompt is the sequence itself; what is decoded continues it."""

    def logits(self, model, rows, side="right", **kwargs):
        """The logits of each row's real tokens: a list of [length, vocab]."""
        ids, mask = pad(rows, side)
        logits = model(input_ids=ids, attention_mask=mask, **kwargs).logits
        return [logits[i, mask[i].bool()] for i in range(len(rows))]

    def steps(self, model, ids, chunks, cache=None):
        """Feeds `ids` in chunks beside a cache; the logits of all of them."""
        logits, past = [], cache
        for chunk in ids.split(chunks, dim=1):
            output = model(input_ids=chunk, past_key_values=past, use_cache=True)
            logits, past = [*logits, output.logits], output.past_key_values
        return torch.cat(logits, dim=1)

    def at_once(self, model, ids):
        return model(input_ids=ids, use_cache=False).logits

    def static_cache(self, model, length):
        return StaticCache(config=model.config, max_cache_len=length)

    def generate(self, model, rows, side="left", **kwargs):
        """The new tokens of each row, up to its end token."""
        ids, mask = pad(rows, side)
        output = model.generate(input_ids=ids, attention_mask=mask, pad_token_id=PAD, **kwargs)
        return [until_end(row[ids.shape[1] :]) for row in output.tolist()]

    def training_batch(self, rows, labels=None):
        ids, mask = pad(rows, "right")
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": ids.masked_fill(mask == 0, -100),
        }

    def shifted(self, logits, labels):
        return logits[:, :-1], labels[:, 1:]


class Seq2Seq(Family):
    """A prompt is a source; what is decoded answers it. The target is one fixed sequence where one
    is needed."""

    def logits(self, model, rows, side="right", **kwargs):
        ids, mask = pad(rows, side)
        target = torch.tensor([[1, *random_rows([6], seed=9)[0]]] * len(rows))
        output = model(input_ids=ids, attention_mask=mask, decoder_input_ids=target, **kwargs)
        return list(output.logits)

    def source(self, ids):
        """A padded source for each row of targets, with its encoder outputs."""
        source, mask = pad(random_rows([5 + 2 * (i % 2) for i in range(len(ids))], seed=7), "right")
        return {"input_ids": source, "attention_mask": mask}

    def steps(self, model, ids, chunks, cache=None):
        logits, past = [], cache
        source = self.source(ids)
        encoder_outputs = model.get_encoder()(**source)
        for chunk in ids.split(chunks, dim=1):
            output = model(
                encoder_outputs=encoder_outputs,
                attention_mask=source["attention_mask"],
                decoder_input_ids=chunk,
                past_key_values=past,
                use_cache=True,
            )
            logits, past = [*logits, output.logits], output.past_key_values
        return torch.cat(logits, dim=1)

    def at_once(self, model, ids):
        return model(**self.source(ids), decoder_input_ids=ids, use_cache=False).logits

    def static_cache(self, model, length):
        config = model.config.get_text_config(decoder=True)
        return EncoderDecoderCache(
            StaticCache(config=config, max_cache_len=length),
            StaticCache(config=config, max_cache_len=7),
        )

    def generate(self, model, rows, side="right", **kwargs):
        ids, mask = pad(rows, side)
        output = model.generate(input_ids=ids, attention_mask=mask, **kwargs)
        return [until_end(row[1:]) for row in output.tolist()]

    def training_batch(self, rows, labels=None):
        ids, mask = pad(rows, "right")
        targets, target_mask = pad(labels or [row[::-1] for row in rows], "right")
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": targets.masked_fill(target_mask == 0, -100),
        }

    def shifted(self, logits, labels):
        return logits, labels


def until_end(tokens, end=2):
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


DECODER = Decoder(
    "decoder",
    hf_tformer.TformerDecoderConfig,
    hf_tformer.TformerDecoderForCausalLM,
    hf_tformer.TformerDecoderModel,
    {
        "vocab_size": 101,
        "hidden_size": 36,
        "intermediate_size": 44,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 10,
        "max_position_embeddings": 64,
        "pad_token_id": PAD,
    },
)
SEQ2SEQ = Seq2Seq(
    "seq2seq",
    hf_tformer.TformerSeq2SeqConfig,
    hf_tformer.TformerSeq2SeqForConditionalGeneration,
    hf_tformer.TformerSeq2SeqModel,
    {
        "vocab_size": 101,
        "hidden_size": 36,
        "intermediate_size": 44,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 10,
        "max_position_embeddings": 64,
        "dropout": 0.0,
    },
)
FAMILIES = (DECODER, SEQ2SEQ)
