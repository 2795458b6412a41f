"""What differs between the families where the same is asked of all: batches, targets, decoding.

Sizes are odd on purpose: three key heads, a head size that is not hidden / heads, a prime
vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import EncoderDecoderCache, StaticCache

BACKENDS = ("eager", "sdpa", "flash_attention_2")  # the last one simulated: see simulated_flash.py
PAD, START, END = 0, 1, 2
IGNORED = -100

SIZES = {
    "vocab_size": 101,
    "hidden_size": 36,
    "intermediate_size": 44,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 10,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
}


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


@torch.no_grad()
def randomise(model, seed=0):
    """Fills all that can be learned: norms at one and biases at zero would hide mistakes.

    Frozen parameters are tables of constants and keep their values. A buffer that is saved
    (final_logits_bias) is a weight in all but name: it has to collect a gradient to be compared.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, nn.Parameter) and not tensor.requires_grad:
            continue
        values = torch.randn(tensor.shape, generator=generator)
        is_gain = tensor.ndim == 1 and name.endswith("weight")
        # A new gain is one, or zero where one is added to it.
        tensor.copy_(tensor.mean() + 0.3 * values if is_gain else 0.25 * values)
        tensor.requires_grad_()
    return model


@dataclass
class Family:
    """Classes of a family, and how they are asked; `sizes` are fields of a small configuration."""

    name: str
    config_class: type
    model_class: type
    base_class: type
    auto: type  # the Auto class of its usual head
    sizes: dict

    def config(self, **overrides):
        return self.config_class(**{**self.sizes, **overrides})

    def build(self, backend="sdpa", model_class=None, **overrides):
        model = randomise((model_class or self.model_class)(self.config(**overrides))).eval()
        if backend is not None:  # else the model's own choice
            model.config._attn_implementation = backend
        return model

    def target(self, ids):
        """What a forward pass is given besides its input: only an encoder-decoder wants more."""
        return {}

    def logits(self, model, rows, side="right", **kwargs):
        """The logits of each row's real tokens: a list of [length, vocab]."""
        ids, mask = pad(rows, side)
        logits = model(input_ids=ids, attention_mask=mask, **kwargs).logits
        return [logits[i, mask[i].bool()] for i in range(len(rows))]

    def training_rows(self, rows, targets=None):
        """What a dataset holds: input_ids and labels, unpadded."""
        return [{"input_ids": row, "labels": row} for row in rows]

    def training_batch(self, rows, targets=None):
        return self.collate(self.training_rows(rows, targets))

    def collate(self, examples):
        """Rows of a dataset as one batch, padded on the right."""
        ids, mask = pad([example["input_ids"] for example in examples], "right")
        labels, counted = pad([example["labels"] for example in examples], "right")
        labels = labels.masked_fill(counted == 0, IGNORED)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def shifted(self, logits, labels):
        """Logits beside the labels that they are to give."""
        return logits, labels


class Encoder(Family):
    """Each token is found from those on both sides; nothing is written."""

    # The window of the second layer is narrow enough to matter.
    usual_sizes = {**SIZES, "num_hidden_layers": 2, "sliding_window": 4}

    def training_rows(self, rows, targets=None):
        """Some tokens are to be found: every other one."""
        labels = ([t if i % 2 == 0 else IGNORED for i, t in enumerate(row)] for row in rows)
        return [
            {"input_ids": row, "labels": wanted} for row, wanted in zip(rows, labels, strict=True)
        ]


class Decoder(Family):
    """A prompt is the sequence itself; what is decoded continues it."""

    usual_sizes = {**SIZES, "num_hidden_layers": 2}

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

    def shifted(self, logits, labels):
        return logits[:, :-1], labels[:, 1:]

    def written_by_hand(self, model, row, steps=10):
        """The loop of a first lesson: the whole sequence again for each token, no cache."""
        written = torch.tensor([row])
        for _ in range(steps):
            token = model(input_ids=written, use_cache=False).logits[:, -1].argmax(-1)
            written = torch.cat((written, token[:, None]), dim=1)
        return until_end(written[0, len(row) :].tolist())


class Seq2Seq(Family):
    """A prompt is a source; what is decoded answers it. The target is one fixed sequence where one
    is needed."""

    usual_sizes = {**SIZES, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.0}

    def target(self, ids):
        return {"decoder_input_ids": ids}

    def logits(self, model, rows, side="right", **kwargs):
        ids, mask = pad(rows, side)
        target = torch.tensor([[START, *random_rows([6], seed=9)[0]]] * len(rows))
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

    def written_by_hand(self, model, row, steps=10):
        source, written = torch.tensor([row]), torch.tensor([[START]])
        for _ in range(steps):
            output = model(input_ids=source, decoder_input_ids=written, use_cache=False)
            token = output.logits[:, -1].argmax(-1)
            written = torch.cat((written, token[:, None]), dim=1)
        return until_end(written[0, 1:].tolist())

    def training_rows(self, rows, targets=None):
        targets = targets or [row[::-1] for row in rows]
        return [
            {"input_ids": row, "labels": target} for row, target in zip(rows, targets, strict=True)
        ]


def until_end(tokens, end=END):
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens
