"""Write the attention page: one HTML file that needs no other file and no network.

    TitledMaps ... → payload (JSON) + packed numbers, one script element each → page.html filled

The page is written in TypeScript (`page/src`, built into `page/page.js`). Its content security
policy lets its own script and style run and nothing else: no request can leave it. Everything from
a model or a tokenizer is data: JSON without a single `<`, and base64.
"""

import base64
import hashlib
import html
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .maps import ALONE, KINDS, AttentionMap, TitledMaps
from .measures import count_repeats, measure_heads
from .next_tokens import NextTokens
from .packing import choose_rounding, pack_booleans, pack_floats, pack_weights, thumbnail
from .recording import Scores

if TYPE_CHECKING:
    import torch

ROOM = Path(__file__).parent / "page"
THUMBNAIL = 32  # cells along a side
SCORES_LIMIT = 4e6  # numbers: 20 MB of a page; more are omitted, and the page says so


def save_page(path: str | Path, entries: list[TitledMaps]) -> None:
    """Write the page whole or not at all."""
    path = Path(path)
    descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(page_parts(entries))
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def notebook_frame(entries: list[TitledMaps]) -> str:
    """Return the page as a frame for a notebook, isolated from the notebook itself."""
    page = html.escape("".join(page_parts(entries)), quote=True)
    style = "width: 100%; height: 720px; border: 0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def page_parts(entries: list[TitledMaps]) -> Iterator[str]:
    """Yield the page in parts, so that it need not be in memory as a whole."""
    style, script = ((ROOM / name).read_text("utf-8") for name in ("style.css", "page.js"))
    maps = [(number, one) for number, entry in enumerate(entries) for one in entry.values()]
    if any(one.weights.isnan().any() for _, one in maps):
        raise ValueError("some weights are NaN, which a page cannot show: tables show where")
    count = sum(one.weights.numel() for _, one in maps)
    rounding = choose_rounding(count)
    with_scores = sum(map(numbers_of_scores, (one for _, one in maps))) <= SCORES_LIMIT
    payload = {
        "rounding": {"name": rounding.name, "bits": rounding.bits, "error": rounding.error},
        "scoresLeftOut": not with_scores,
        "entries": [describe(number, entry, with_scores) for number, entry in enumerate(entries)],
    }
    before, after = (ROOM / "page.html").read_text("utf-8").split("<!-- data -->")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    yield before.replace("/* policy */", policy).replace("/* style */", style)
    # A `<` could end the element that holds it.
    yield data("payload", json.dumps(payload, ensure_ascii=False).replace("<", "\\u003c"))
    for number, one in maps:
        for layer, weights in enumerate(one.weights):
            lines = "\n".join(pack_weights(head, rounding) for head in weights)
            yield data(f"weights-{chunks_of(number, one)}-{layer}", lines)
        for layer, scores in enumerate(one.scores if with_scores else []):
            if scores is not None:
                lines = "\n".join(
                    [pack_booleans(scores.hidden), *map(pack_floats, tensors_of(scores))]
                )
                yield data(f"scores-{chunks_of(number, one)}-{layer}", lines)
    yield after.replace("/* script */", script)


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def data(name: str, text: str) -> str:
    return f'<script type="text/plain" id="{name}">{text}</script>\n'


def describe(number: int, entry: TitledMaps, with_scores: bool) -> dict:
    sides: dict[str, list[str]] = {}
    for one in entry.values():
        rows, columns = sides_of(one, entry)
        sides[rows], sides[columns] = one.rows, one.columns
    return {
        "title": entry.title,
        "tokens": sides,
        "writtenFrom": entry.written_from,
        "writtenBy": [describe_next(one) for one in entry.written_by],
        "maps": [describe_map(number, one, entry, with_scores) for one in entry.values()],
    }


def describe_next(one: NextTokens) -> dict:
    return {
        "tokens": one.tokens,
        "logits": [round(value, 4) for value in one.logits],
        "others": [[round(value, 4), count] for value, count in one.others],
    }


def sides_of(one: AttentionMap, entry: TitledMaps) -> tuple[str, str]:
    """Return the sequences of a map's rows and columns: an encoder-decoder has two sequences."""
    has_two = len(entry) > 1 or "cross" in entry
    _, rows, columns = KINDS.get(one.name, ALONE) if has_two else ALONE
    return rows, columns


def chunks_of(number: int, one: AttentionMap) -> str:
    """Return how the ids of the elements end that hold its numbers."""
    return f"{number}-{one.name}"


def describe_map(number: int, one: AttentionMap, entry: TitledMaps, with_scores: bool) -> dict:
    rows, columns = sides_of(one, entry)
    layers, heads = one.weights.shape[:2]
    measures = measure_heads(one.weights, one.rows, one.name != "cross")
    return {
        "kind": one.name,
        "rows": rows,
        "columns": columns,
        "layers": layers,
        "heads": heads,
        "chunks": chunks_of(number, one),
        "thumbnails": [thumbnail(layer, THUMBNAIL) for layer in one.weights],
        "measures": {
            name: [[round(value, 4) for value in layer] for layer in values.tolist()]
            for name, values in measures.items()
        },
        "repeats": count_repeats(one.rows) if one.name != "cross" else 0,
        "scores": [describe_scores(s) if with_scores else None for s in one.scores],
    }


def describe_scores(scores: Scores | None) -> dict | None:
    if scores is None:
        return None
    return {
        "size": scores.query.shape[-1],
        "scale": scores.scale,
        "cap": scores.cap,
        "hasBias": scores.bias is not None,
        "turned": 0 if scores.cos is None else scores.cos.shape[-1],
    }


def tensors_of(scores: Scores) -> "list[torch.Tensor]":
    """Return the tensors of a layer's scores in the order in which the page reads them."""
    return [
        scores.query,
        scores.key,
        *(t for t in (scores.bias, scores.cos, scores.sin) if t is not None),
    ]


def numbers_of_scores(one: AttentionMap) -> int:
    return sum(t.numel() for scores in one.scores if scores is not None for t in tensors_of(scores))
