"""Seeing attention: which token looks at which, for every layer and head.

    model, one row of inputs → attention_maps → {"decoder": AttentionMap, ...}
                             → as_text | draw | save_html

Fast backends never form the weights, so the forward pass runs with eager attention, whatever the
model is set to; afterwards it is set as before. Any model of transformers that returns its weights
is shown, not ours alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .maps import ALONE, KINDS, AttentionMap, TitledMaps
from .page import notebook_frame, save_page
from .recording import NoEager, recording

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class AttentionMaps(TitledMaps):
    """The maps of one sequence in one model, by name; they show themselves as a page."""

    def save_html(self, path: "str | Path", *others: "AttentionMaps") -> None:
        """Write one page, which needs no network; `others` are more sequences or models in it."""
        save_page(path, [self, *others])

    def _repr_html_(self) -> str:
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
