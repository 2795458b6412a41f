"""Collect attention weights: which token attends to which, for every layer and head.

    model, one sequence → attention_maps → {"decoder": AttentionMap, ...}
                        → as_text | draw | save_html

Fast backends never compute the weights as a matrix, so the forward pass runs with eager attention;
afterwards the model has the backend that it had before. This works for every model of transformers
that returns its weights, not for ours alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .maps import ALONE, KINDS, AttentionMap, TitledMaps
from .next_tokens import next_tokens
from .page import notebook_frame, save_page
from .recording import NoEager, Scores, recording

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import ModelOutput


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
    """Return the attention weights of one sequence by kind: `decoder` or `encoder`; an
    encoder-decoder has both, and `cross`.

    `inputs` are the arguments of the model: `input_ids`, and `decoder_input_ids` for an
    encoder-decoder. Without a tokenizer, tokens are labelled by their ids. `written_from` is the
    index of the first token that the model generated, if it did.
    """
    if inputs.get("input_ids") is None:
        raise ValueError("the rows and columns of attention are tokens: give input_ids")
    ids = {"source": inputs["input_ids"], "target": inputs.get("decoder_input_ids")}
    if model.config.is_encoder_decoder and ids["target"] is None:
        raise ValueError("an encoder-decoder attends from a target, too: give decoder_input_ids")
    if len(inputs["input_ids"]) != 1:
        raise ValueError(f"input_ids has {len(inputs['input_ids'])} sequences: give one at a time")
    output, scores = run_eagerly(model, inputs)
    labels = {
        side: read_tokens(row[0].tolist(), tokenizer)
        for side, row in ids.items()
        if row is not None
    }
    masks = {"source": inputs.get("attention_mask"), "target": inputs.get("decoder_attention_mask")}
    maps = AttentionMaps()
    for name, (given, rows, columns) in kinds_of(model, inputs, output).items():
        layers = [layer for layer in output[given] if layer is not None]  # None: no attention there
        refuse_other_weights(model, layers, (len(labels[rows]), len(labels[columns])))
        known = [scores.get(id(layer), lambda: None)() for layer in layers]
        weights = stack(layers, masks[rows])
        maps[name] = AttentionMap(name, weights, labels[rows], labels[columns], known)
    if not maps:
        raise ValueError(f"{type(model).__name__} returns no attention weights: it cannot be shown")
    maps.title = model.config.name_or_path or type(model).__name__
    maps.written_from = written_from
    logits = output.get("logits")
    written = labels.get("target", labels["source"])
    if written_from and logits is not None and logits.shape[1] == len(written):
        maps.written_by = tuple(
            next_tokens(logits[0], written_from, partial(read_tokens, tokenizer=tokenizer))
        )
    return maps


def run_eagerly(
    model: "PreTrainedModel", inputs: "Mapping[str, torch.Tensor]"
) -> "tuple[ModelOutput, dict[int, Callable[[], Scores | None]]]":
    """Return the output with its weights, and the scores of each layer by the id() of its weights.

    There are no scores for a model whose eager attention function is not found.
    """
    try:
        with recording(model) as calls:
            output = run_once(model, inputs)
    except NoEager:
        output, calls = run_once(model, inputs), []
    return output, {id(weights): scores for weights, scores in calls}


def run_once(model: "PreTrainedModel", inputs: "Mapping[str, torch.Tensor]") -> "ModelOutput":
    import torch

    with set_to_eager(model), torch.no_grad():
        return model(**inputs, output_attentions=True, use_cache=False)


def kinds_of(
    model: "PreTrainedModel", inputs: "Mapping[str, torch.Tensor]", output: Mapping
) -> dict[str, tuple[str, str, str]]:
    """Return the entries of KINDS that the output has weights for.

    A model of one stack is an encoder if its tokens attend to later ones.
    """
    if model.config.is_encoder_decoder:
        return {name: kind for name, kind in KINDS.items() if has_weights(output.get(kind[0]))}
    if not has_weights(output.get("attentions")):
        return {}
    mask = inputs.get("attention_mask")
    reads = slice(None) if mask is None or mask.dim() != 2 else mask[0].bool().cpu()
    looks_ahead = any(  # except from padding, which may attend to anything
        (w.cpu().triu(1)[:, :, reads] > 0).any() for w in output["attentions"] if w is not None
    )
    flags = [part.is_causal for part in model.modules() if hasattr(part, "is_causal")]
    is_encoder = looks_ahead or (bool(flags) and not any(flags))  # as for a sequence of one token
    return {"encoder" if is_encoder else "decoder": ALONE}


def refuse_other_weights(
    model: "PreTrainedModel", layers: "list[torch.Tensor]", shape: tuple[int, int]
) -> None:
    """Refuse what some models return instead: windows or blocks of attention, or its scores."""
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
    """Run a model with eager attention and without dropout; restore its settings at the end."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    trained = [part for part in model.modules() if part.training]  # perhaps not all of them
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


def stack(attentions: "Iterable[torch.Tensor]", mask: "torch.Tensor | None") -> "torch.Tensor":
    """Join tensors [1, heads, rows, columns], one per layer, as [layers, heads, rows, columns].

    Rows of padding, which may attend to nothing, are 0 where some models give NaN.
    """
    import torch

    weights = torch.cat([layer.float().cpu() for layer in attentions])
    if mask is not None and mask.dim() == 2:
        is_padding = mask[0].cpu() == 0
        weights[:, :, is_padding] = weights[:, :, is_padding].nan_to_num()
    return weights


def read_tokens(ids: list[int], tokenizer: "PreTrainedTokenizerBase | None") -> list[str]:
    """Return the text of each token, with blanks that a label would lose made visible."""
    if tokenizer is None:
        return [str(token) for token in ids]
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in ids]
    names = tokenizer.convert_ids_to_tokens(ids)
    # A part of a character has no text of its own; an id beyond the vocabulary has no name.
    readable = [
        as_bytes(name or str(token)) if not text or "\ufffd" in text else text
        for token, text, name in zip(ids, texts, names, strict=True)
    ]
    return [repr(text)[1:-1].replace(" ", "\u2423") for text in readable]


def as_bytes(name: str) -> str:
    """Return the bytes that a token stands for, as in `<F0>`, or its name.

    Byte-level vocabularies write a byte as a letter, others as <0xF0>.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    if name.startswith("<0x") or not all(letter in letters for letter in name):
        return name.replace("<0x", "<")
    numbers = (letters[letter] for letter in name)
    return "".join(chr(byte) if byte < 128 else f"<{byte:02X}>" for byte in numbers)
