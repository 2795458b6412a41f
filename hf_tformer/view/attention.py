"""Seeing attention: which token looks at which, for every layer and head.

    model, one row of inputs → attention_maps → {"decoder": AttentionMap, ...}
                             → as_text | draw | save_html

Fast backends never form the weights, so the forward pass runs with eager attention, whatever the
model is set to; afterwards it is set as before. Any model of transformers that returns its weights
is shown, not ours alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .recording import NoEager, Scores, recording

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
ALONE = ("attentions", "source", "source")
# matplotlib's own font has no Chinese, Japanese or Korean; one of these usually is installed.
MORE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "SimHei")
CELL = 0.28  # inches that a token takes in a picture


@dataclass(frozen=True)
class AttentionMap:
    """The weights [layers, heads, rows, columns] of one kind; each row sums to one.

    A row is the token that looks, a column the token that is looked at. `scores` says of each layer
    what the weights came from, None where that is not known.
    """

    name: str
    weights: "torch.Tensor"
    rows: list[str]
    columns: list[str]
    scores: list[Scores | None] = field(default_factory=list, repr=False)

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


class AttentionMaps(dict[str, AttentionMap]):
    """The maps of one text in one model, by name.

    `title` is the model's name. `written_from` is the index of the first token that the model
    wrote itself, or None.
    """

    title: str = ""
    written_from: int | None = None

    def save_html(self, path: "str | Path", *others: "AttentionMaps") -> None:
        """One page, which needs no network; `others` are further texts or models in it."""
        from .page import save_page

        save_page(path, [self, *others])

    def _repr_html_(self) -> str:
        from .page import notebook_frame

        return notebook_frame([self])


def attention_maps(
    model: "PreTrainedModel",
    inputs: "Mapping[str, torch.Tensor]",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    written_from: int | None = None,
) -> AttentionMaps:
    """The attention of one row of `inputs`, by name: `decoder` or `encoder`; an encoder-decoder has
    both, and `cross`.

    `inputs` is what the model is called with: `input_ids`, for an encoder-decoder also
    `decoder_input_ids`. Without a tokenizer, tokens are labelled by their ids. Where the text was
    written by the model, `written_from` is the index of its first written token.
    """
    if inputs.get("input_ids") is None:
        raise ValueError("the rows and columns of attention are tokens of a text: give input_ids")
    ids = {"source": inputs["input_ids"], "target": inputs.get("decoder_input_ids")}
    if model.config.is_encoder_decoder and ids["target"] is None:
        raise ValueError("an encoder-decoder also looks from its target: give decoder_input_ids")
    if len(ids["source"]) != 1:
        raise ValueError(f"input_ids has {len(ids['source'])} rows: give one at a time")
    output, scores = run_eagerly(model, inputs)
    labels = {
        side: read_tokens(row[0].tolist(), tokenizer)
        for side, row in ids.items()
        if row is not None
    }
    maps = AttentionMaps()
    for name, (given, rows, columns) in kinds_of(model, inputs, output).items():
        layers = [layer for layer in output[given] if layer is not None]  # None: no attention there
        refuse_other_weights(model, layers, (len(labels[rows]), len(labels[columns])))
        known = [scores.get(id(layer), lambda: None)() for layer in layers]
        maps[name] = AttentionMap(name, stack(layers), labels[rows], labels[columns], known)
    if not maps:
        raise ValueError(f"{type(model).__name__} returns no attention weights: it cannot be shown")
    maps.title = model.config.name_or_path or type(model).__name__
    maps.written_from = written_from
    return maps


def run_eagerly(model, inputs):
    """The output with its weights, and the scores of each layer, by the identity of its weights."""
    try:
        with recording(model) as calls:
            output = run_once(model, inputs)
    except NoEager:  # then without the scores
        output, calls = run_once(model, inputs), []
    return output, {id(weights): scores for weights, scores in calls}


def run_once(model, inputs):
    import torch

    with set_to_eager(model), torch.no_grad():
        return model(**inputs, output_attentions=True, use_cache=False)


def kinds_of(
    model: "PreTrainedModel", inputs: "Mapping[str, torch.Tensor]", output: Mapping
) -> dict[str, tuple[str, str, str]]:
    """What there is of KINDS. A model of one stack is an encoder if it looks ahead."""
    if model.config.is_encoder_decoder:
        return {name: kind for name, kind in KINDS.items() if has_weights(output.get(kind[0]))}
    if not has_weights(output.get("attentions")):
        return {}
    mask = inputs.get("attention_mask")
    reads = slice(None) if mask is None or mask.dim() != 2 else mask[0].bool().cpu()
    looks_ahead = any(  # but for rows of padding, which may look anywhere
        (w.cpu().triu(1)[:, :, reads] > 0).any() for w in output["attentions"] if w is not None
    )
    told = [part.is_causal for part in model.modules() if hasattr(part, "is_causal")]
    is_encoder = looks_ahead or (bool(told) and not any(told))  # also of one token
    return {"encoder" if is_encoder else "decoder": ALONE}


def refuse_other_weights(
    model: "PreTrainedModel", layers: "list[torch.Tensor]", shape: tuple[int, int]
) -> None:
    """Some models return windows or blocks of their attention, or its scores."""
    model_class = type(model).__name__
    for layer in layers:
        if layer.shape != (1, layers[0].shape[1], *shape):
            raise ValueError(
                f"{model_class} returns attention weights of another shape than heads × tokens × "
                f"tokens, {list(layer.shape[1:])}: they cannot be shown"
            )
        if (layer < 0).any() or (layer > 1.01).any():
            raise ValueError(
                f"{model_class} returns scores before softmax in place of attention weights: they "
                "cannot be shown"
            )


def has_weights(layers: "Iterable[torch.Tensor | None] | None") -> bool:
    return any(layer is not None for layer in layers or ())


@contextmanager
def set_to_eager(model: "PreTrainedModel") -> Iterator[None]:
    """Eager attention without dropout, and at the end what was set before."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    trained = [part for part in model.modules() if part.training]  # some may be frozen
    for config in configs.values():  # T5's stacks have copies of their own
        config._attn_implementation = "eager"
    model.eval()
    try:
        yield
    finally:
        for config, backend in before:
            config._attn_implementation = backend
        for part in trained:
            part.training = True


def stack(attentions: "Iterable[torch.Tensor]") -> "torch.Tensor":
    """One tensor [1, heads, rows, columns] per layer → [layers, heads, rows, columns].

    Rows that see nothing are 0, where some models give no number.
    """
    import torch

    return torch.cat([layer.float().cpu() for layer in attentions]).nan_to_num()


def read_tokens(ids: list[int], tokenizer: "PreTrainedTokenizerBase | None") -> list[str]:
    """How each token reads; blanks that would be lost in a label are shown."""
    if tokenizer is None:
        return [str(token) for token in ids]
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]
    names = tokenizer.convert_ids_to_tokens(ids)
    # A piece of a character has no text of its own; a number beyond the vocabulary has no name.
    readable = [
        (name or str(token)) if not text or "\ufffd" in text else text
        for token, text, name in zip(ids, texts, names, strict=True)
    ]
    return [repr(text)[1:-1].replace(" ", "\u2423") for text in readable]
