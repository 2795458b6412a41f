"""Attention weights as data: one kind of attention as tables and a picture, and all of a model."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .next_tokens import NextTokens
from .recording import Scores

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

# kind → field of the model's output, and the sequences of its rows and its columns
KINDS = {
    "encoder": ("encoder_attentions", "source", "source"),
    "decoder": ("decoder_attentions", "target", "target"),
    "cross": ("cross_attentions", "target", "source"),
}
ALONE = ("attentions", "source", "source")
# matplotlib's own font has no Chinese, Japanese or Korean; one of these usually is installed.
MORE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "SimHei")
CELL = 0.28  # inches that a token takes in a picture


@dataclass(frozen=True)
class AttentionMap:
    """The weights [layers, heads, rows, columns] of one kind of attention; each row sums to one.

    A row is the token that attends, a column the token that it attends to. `scores` holds for each
    layer what the weights were computed from, or None where that is not known.
    """

    name: str
    weights: "torch.Tensor"
    rows: list[str]
    columns: list[str]
    scores: list[Scores | None] = field(default_factory=list, repr=False)

    def choose(self, kind: str, wanted: Iterable[int] | None) -> list[int]:
        """Return indices of layers or heads, counted from 0: all of them if `wanted` is None."""
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
        """Return one table per head."""
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
            numbers = (f"{w:{width}.2f}" for w, width in zip(row, widths, strict=True))
            lines.append(f"{label:>{margin}} {' '.join(numbers).replace('nan', 'NaN')}")
        return "\n".join(lines)

    def draw(
        self, layers: Iterable[int] | None = None, heads: Iterable[int] | None = None
    ) -> "Figure":
        """Return a matplotlib figure, layers downwards and heads across; `.savefig` writes it."""
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
    """Return matplotlib's class of figures, and the fonts for tokens."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.font_manager import fontManager
    except ImportError as error:
        raise ImportError(
            "a picture needs matplotlib: run `pip install 'hf-tformer[viz]'`, or choose tables"
        ) from error
    installed = {font.name for font in fontManager.ttflist}
    return Figure, ["DejaVu Sans", *(font for font in MORE_FONTS if font in installed)]


class TitledMaps(dict[str, AttentionMap]):
    """The maps of one sequence in one model, by name.

    `title` is the model's name. `written_from` is the index of the first generated token, or None.
    `written_by` is what the model gave for each of them, where it has a head for that.
    """

    title: str = ""
    written_from: int | None = None
    written_by: tuple[NextTokens, ...] = ()
