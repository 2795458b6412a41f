"""Build small models of each family and call them: the differences that common tests abstract from.

Sizes are odd on purpose: three key heads, a head size that is not hidden / heads, a prime
vocabulary.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn
from transformers import Cache, EncoderDecoderCache, PreTrainedConfig, PreTrainedModel, StaticCache

BACKENDS = ("eager", "sdpa", "flash_attention_2")  # the last one simulated: see simulated_flash.py
PAD, START, END = 0, 1, 2
IGNORED = -100

Rows = list[list[int]]  # token ids of several sequences
Examples = list[dict[str, list[int]]]  # input_ids and labels
Batch = dict[str, torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]
Model = TypeVar("Model", bound=nn.Module)

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


def pad(rows: Rows, side: str) -> Pair:
    """Return input_ids and attention_mask of sequences, padded on one side."""
    width = max(len(row) for row in rows)
    ids, mask = torch.full((len(rows), width), PAD), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return ids, mask


def random_rows(lengths: list[int], seed: int = 0, vocab_size: int = 101) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocab_size, (n,), generator=generator).tolist() for n in lengths]


@torch.no_grad()
def randomise(model: Model, seed: int = 0) -> Model:
    """Fill all parameters with random values: norms at one and biases at zero would hide mistakes.

    Frozen parameters are tables of constants and keep their values. A buffer that is saved
    (final_logits_bias) counts as a weight, whose gradient is compared.
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
    """The classes of a family and how its models are called.

    `sizes` are the fields of a small configuration.
    """

    name: str
    config_class: type[PreTrainedConfig]
    model_class: type[PreTrainedModel]
    base_class: type[PreTrainedModel] | None
    auto: type  # the Auto class of its usual head
    sizes: dict[str, Any]

    usual_sizes: ClassVar[dict[str, Any]]
    ids_name: ClassVar[str] = "input_ids"  # the argument of the sequence that logits are for

    def config(self, **overrides: object) -> PreTrainedConfig:
        return self.config_class(**{**self.sizes, **overrides})

    def build(
        self,
        backend: str | None = "sdpa",
        model_class: type[PreTrainedModel] | None = None,
        **overrides: object,
    ) -> PreTrainedModel:
        model = randomise((model_class or self.model_class)(self.config(**overrides))).eval()
        if backend is not None:  # or else the model's own choice
            model.config._attn_implementation = backend
        return model

    def for_one_graph(self, model: Model) -> Model:
        """Return the model as one graph of a compiler can hold it."""
        return model

    def target(self, ids: torch.Tensor) -> Batch:
        """Return the arguments of a forward pass besides its input, for an encoder-decoder."""
        return {}

    def source(self, ids: torch.Tensor) -> Batch:
        """Return a padded source for each target sequence, for an encoder-decoder."""
        return {}

    def logits(
        self, model: PreTrainedModel, rows: Rows, side: str = "right", **kwargs: object
    ) -> list[torch.Tensor]:
        """Return the logits, [length, vocab], of each sequence without its padding."""
        ids, mask = pad(rows, side)
        logits = model(input_ids=ids, attention_mask=mask, **kwargs).logits
        return [logits[i, mask[i].bool()] for i in range(len(rows))]

    def at_once(self, model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits of one forward pass without a cache."""
        return model(**self.source(ids), **{self.ids_name: ids}, use_cache=False).logits

    def training_rows(self, rows: Rows, targets: Rows | None = None) -> Examples:
        """Return the examples of a dataset: input_ids and labels without padding."""
        return examples_of(rows, rows)

    def training_batch(self, rows: Rows, targets: Rows | None = None) -> Batch:
        return self.collate(self.training_rows(rows, targets))

    def collate(self, examples: Examples) -> Batch:
        """Collate the examples of a dataset to a batch that is padded on the right."""
        ids, mask = pad([example["input_ids"] for example in examples], "right")
        labels, counted = pad([example["labels"] for example in examples], "right")
        labels = labels.masked_fill(counted == 0, IGNORED)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def shifted(self, logits: torch.Tensor, labels: torch.Tensor) -> Pair:
        """Align logits with the labels that they predict."""
        return logits, labels


class Encoder(Family):
    """An encoder, which finds masked tokens from those on both sides and does not generate."""

    # The window of the second layer is narrow enough to matter.
    usual_sizes = {**SIZES, "num_hidden_layers": 2, "sliding_window": 4}

    def training_rows(self, rows: Rows, targets: Rows | None = None) -> Examples:
        """Return examples with a label for every other token."""
        every_other = [[t if i % 2 == 0 else IGNORED for i, t in enumerate(row)] for row in rows]
        return examples_of(rows, every_other)


class GeneratingFamily(Family):
    """A family whose models generate sequences, with a cache or without."""

    prompt_side: ClassVar[str]  # where prompts are padded

    def encoded(self, model: PreTrainedModel, ids: torch.Tensor) -> dict[str, Any]:
        """Return the arguments that all steps have in common, for an encoder-decoder."""
        return {}

    def steps(
        self, model: PreTrainedModel, ids: torch.Tensor, chunks: int, cache: Cache | None = None
    ) -> torch.Tensor:
        """Return the logits of `ids`, which the model reads in chunks beside a cache."""
        logits: list[torch.Tensor] = []
        past, source = cache, self.encoded(model, ids)
        for chunk in ids.split(chunks, dim=1):
            output = model(**source, **{self.ids_name: chunk}, past_key_values=past, use_cache=True)
            logits, past = [*logits, output.logits], output.past_key_values
        return torch.cat(logits, dim=1)

    def static_cache(self, model: PreTrainedModel, length: int) -> Cache:
        config = model.config.get_text_config(decoder=True)
        cache = StaticCache(config=config, max_cache_len=length)
        if not model.config.is_encoder_decoder:
            return cache
        return EncoderDecoderCache(cache, StaticCache(config=config, max_cache_len=7))

    def generate(
        self, model: PreTrainedModel, rows: Rows, side: str | None = None, **kwargs: object
    ) -> Rows:
        """Return the generated tokens of each sequence, up to its end token."""
        ids, mask = pad(rows, side or self.prompt_side)
        start = 1
        if not model.config.is_encoder_decoder:
            start, kwargs["pad_token_id"] = ids.shape[1], PAD
        output = model.generate(input_ids=ids, attention_mask=mask, **kwargs)
        return [until_end(row[start:]) for row in output.tolist()]

    def written_by_hand(self, model: PreTrainedModel, row: list[int], steps: int = 10) -> list[int]:
        """Decode greedily without a cache, with the whole sequence in each step."""
        ids = torch.tensor([row])
        source: Batch = {}
        if model.config.is_encoder_decoder:
            source, ids = {"input_ids": ids}, torch.tensor([[START]])
        start = ids.shape[1]
        for _ in range(steps):
            output = model(**source, **{self.ids_name: ids}, use_cache=False)
            ids = torch.cat((ids, output.logits[:, -1:].argmax(-1)), dim=1)
        return until_end(ids[0, start:].tolist())


class Decoder(GeneratingFamily):
    """A decoder, whose output continues its input."""

    usual_sizes = {**SIZES, "num_hidden_layers": 2}
    prompt_side = "left"

    def shifted(self, logits: torch.Tensor, labels: torch.Tensor) -> Pair:
        return logits[:, :-1], labels[:, 1:]


class Mixture(Decoder):
    """A mixture of experts: a decoder with one layer of each kind, and the loss of a decoder."""

    usual_sizes = {
        **Decoder.usual_sizes,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 22,
        "mlp_only_layers": [0],
        "router_aux_loss_coef": 0.0,
    }

    def for_one_graph(self, model: Any) -> Any:
        """Compute all experts alike: which of them run is not known before."""
        model.set_experts_implementation("batched_mm")
        return model


class Seq2Seq(GeneratingFamily):
    """An encoder-decoder, whose output answers a source; a fixed target is used where needed."""

    usual_sizes = {**SIZES, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.0}
    prompt_side = "right"
    ids_name = "decoder_input_ids"

    def target(self, ids: torch.Tensor) -> Batch:
        return {"decoder_input_ids": ids}

    def source(self, ids: torch.Tensor) -> Batch:
        source, mask = pad(random_rows([5 + 2 * (i % 2) for i in range(len(ids))], seed=7), "right")
        return {"input_ids": source, "attention_mask": mask}

    def encoded(self, model: PreTrainedModel, ids: torch.Tensor) -> dict[str, Any]:
        source = self.source(ids)
        mask = source["attention_mask"]
        return {"encoder_outputs": model.get_encoder()(**source), "attention_mask": mask}

    def logits(
        self, model: PreTrainedModel, rows: Rows, side: str = "right", **kwargs: object
    ) -> list[torch.Tensor]:
        ids, mask = pad(rows, side)
        target = torch.tensor([[START, *random_rows([6], seed=9)[0]]] * len(rows))
        output = model(input_ids=ids, attention_mask=mask, decoder_input_ids=target, **kwargs)
        return list(output.logits)

    def training_rows(self, rows: Rows, targets: Rows | None = None) -> Examples:
        return examples_of(rows, targets or [row[::-1] for row in rows])


def examples_of(rows: Rows, labels: Rows) -> Examples:
    pairs = zip(rows, labels, strict=True)
    return [{"input_ids": row, "labels": wanted} for row, wanted in pairs]


def until_end(tokens: list[int], end: int = END) -> list[int]:
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens
