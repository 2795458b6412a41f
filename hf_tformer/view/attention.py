"""Seeing attention: which token looks at which, for every layer and head.

    model, one row of inputs → attention_maps → {"decoder": AttentionMap, ...} → as_text | draw

Fast backends never form the weights, so the forward pass runs with eager attention, whatever the
model is set to; afterwards it is set as before.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# name here → field of the model's output, and whose tokens are its rows and its columns
KINDS = {
    "encoder": ("encoder_attentions", "source", "source"),
    "decoder": ("decoder_attentions", "target", "target"),
    "cross": ("cross_attentions", "target", "source"),
}
ENCODER_ONLY = {"encoder": ("attentions", "source", "source")}
DECODER_ONLY = {"decoder": ("attentions", "source", "source")}
# matplotlib's own font has no Chinese, Japanese or Korean; one of these usually is installed.
MORE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "SimHei")
CELL = 0.28  # inches that a token takes in a picture


@dataclass(frozen=True)
class AttentionMap:
    """The weights [layers, heads, rows, columns] of one kind; each row sums to one.

    A row is the token that looks, a column the token that is looked at.
    """

    name: str
    weights: "torch.Tensor"
    rows: list[str]
    columns: list[str]

    def choose(self, kind: str, wanted: Iterable[int] | None) -> list[int]:
        """Indices of layers or heads, counted from 0; all where none are named."""
        count = self.weights.shape[{"layer": 0, "head": 1}[kind]]
        wanted = range(count) if wanted is None else list(wanted)
        wrong = [index for index in wanted if not 0 <= index < count]
        if wrong:
            raise ValueError(
                f"there is no {kind} {wrong[0]} in the {self.name} attention: it has {count}, "
                f"numbered from 0 to {count - 1}"
            )
        return list(wanted)

    def as_text(
        self, layers: Iterable[int] | None = None, heads: Iterable[int] | None = None
    ) -> str:
        """One table per head."""
        tables = [
            self.table(layer, head)
            for layer in self.choose("layer", layers)
            for head in self.choose("head", heads)
        ]
        return "\n\n".join(tables)

    def table(self, layer: int, head: int) -> str:
        weights = self.weights[layer, head].tolist()
        margin = max(len(label) for label in self.rows)
        widths = [max(len(label), 4) for label in self.columns]
        heading = " ".join(
            label.rjust(width) for label, width in zip(self.columns, widths, strict=True)
        )
        lines = [f"{self.name} attention, layer {layer}, head {head}", f"{'':{margin}} {heading}"]
        for label, row in zip(self.rows, weights, strict=True):
            numbers = (f"{weight:{width}.2f}" for weight, width in zip(row, widths, strict=True))
            lines.append(f"{label:>{margin}} {' '.join(numbers)}")
        return "\n".join(lines)

    def draw(
        self, layers: Iterable[int] | None = None, heads: Iterable[int] | None = None
    ) -> "Figure":
        """A matplotlib figure, layers downwards and heads across; `.savefig(path)` writes it."""
        layers, heads = self.choose("layer", layers), self.choose("head", heads)
        figure_class, fonts = import_matplotlib()
        height, width = (max(2.0, CELL * len(labels)) for labels in (self.rows, self.columns))
        figure = figure_class(
            figsize=(width * len(heads) + 1.5, height * len(layers) + 1.5), layout="constrained"
        )
        grid = figure.subplots(len(layers), len(heads), squeeze=False, sharex=True, sharey=True)
        for axes_of_layer, layer in zip(grid, layers, strict=True):
            for axes, head in zip(axes_of_layer, heads, strict=True):
                image = axes.imshow(self.weights[layer, head].numpy(), vmin=0, vmax=1)
                axes.set_title(f"layer {layer}, head {head}", fontsize=8)
                axes.set_xticks(range(len(self.columns)), self.columns, rotation=90)
                axes.set_yticks(range(len(self.rows)), self.rows)
                for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
                    label.set(fontsize=7, fontfamily=fonts, parse_math=False)
        figure.colorbar(image, ax=grid, label=f"{self.name} attention weight", shrink=0.6)
        return figure


def import_matplotlib() -> "tuple[type[Figure], list[str]]":
    """The class of figures, and the fonts to write tokens in."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.font_manager import fontManager
    except ImportError as error:
        raise ImportError(
            "a picture needs matplotlib: run `pip install 'hf-tformer[viz]'`, or ask for text"
        ) from error
    installed = {font.name for font in fontManager.ttflist}
    return Figure, ["DejaVu Sans", *(font for font in MORE_FONTS if font in installed)]


def attention_maps(
    model: "PreTrainedModel",
    inputs: "Mapping[str, torch.Tensor]",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
) -> dict[str, AttentionMap]:
    """The attention of one row of `inputs`, by name: `decoder` or `encoder`; an encoder-decoder has
    both, and `cross`.

    `inputs` is what the model is called with: `input_ids`, for an encoder-decoder also
    `decoder_input_ids`. Without a tokenizer, tokens are labelled by their ids.
    """
    import torch

    kinds = kinds_of(model)
    ids = {"source": inputs["input_ids"], "target": inputs.get("decoder_input_ids")}
    if model.config.is_encoder_decoder and ids["target"] is None:
        raise ValueError("an encoder-decoder also looks from its target: give decoder_input_ids")
    if len(ids["source"]) != 1:
        raise ValueError(f"input_ids has {len(ids['source'])} rows: give one at a time")
    with set_to_eager(model), torch.no_grad():
        output = model(**inputs, output_attentions=True, use_cache=False)
    labels = {
        side: read_tokens(row[0].tolist(), tokenizer)
        for side, row in ids.items()
        if row is not None
    }
    return {
        name: AttentionMap(name, stack(output[field]), labels[rows], labels[columns])
        for name, (field, rows, columns) in kinds.items()
    }


def kinds_of(model: "PreTrainedModel") -> dict[str, tuple[str, str, str]]:
    if model.config.is_encoder_decoder:
        return KINDS
    return ENCODER_ONLY if model.config.model_type == "tformer_encoder" else DECODER_ONLY


@contextmanager
def set_to_eager(model: "PreTrainedModel") -> Iterator[None]:
    """Eager attention without dropout, and at the end what was set before."""
    backend, was_training = model.config._attn_implementation, model.training
    model.config._attn_implementation = "eager"
    model.eval()
    try:
        yield
    finally:
        model.config._attn_implementation = backend
        model.train(was_training)


def stack(attentions: "Iterable[torch.Tensor]") -> "torch.Tensor":
    """One tensor [1, heads, rows, columns] per layer → [layers, heads, rows, columns]."""
    import torch

    return torch.cat([layer.float().cpu() for layer in attentions])


def read_tokens(ids: list[int], tokenizer: "PreTrainedTokenizerBase | None") -> list[str]:
    """How each token reads; blanks that would be lost in a label are shown."""
    if tokenizer is None:
        return [str(token) for token in ids]
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]
    names = tokenizer.convert_ids_to_tokens(ids)
    # A piece of a character has no text of its own.
    readable = [
        name if not text or "\ufffd" in text else text
        for text, name in zip(texts, names, strict=True)
    ]
    return [repr(text)[1:-1].replace(" ", "\u2423") for text in readable]
