"""The picture of the whole model that opens a chapter, with the part of that chapter lit.

`python tools/book.py pictures` writes one for each chapter and language; this is their only source.
"""

from collections.abc import Iterator
from typing import NamedTuple

from book import DOCS, LANGUAGES

PICTURES = DOCS / "pictures"


class Box(NamedTuple):
    part: str
    x: int
    y: int
    width: int
    en: str
    zh: str
    height: int = 26


ENCODER, DECODER, CACHE, INSIDE = 14, 182, 354, 488  # left edges
WIDE = 140
BOXES = (
    Box("tokens", ENCODER, 330, WIDE, "tokens of the source", "源序列的词元"),
    Box("embedding", ENCODER, 296, WIDE, "embedding", "词嵌入"),
    Box("positions", ENCODER, 262, WIDE, "+ positions", "+ 位置编码"),
    Box("self", ENCODER, 208, WIDE, "self-attention", "自注意力"),
    Box("norm", ENCODER, 190, WIDE, "add, norm", "残差与归一化", 15),
    Box("mlp", ENCODER, 158, WIDE, "MLP", "前馈网络 MLP"),
    Box("norm", ENCODER, 140, WIDE, "add, norm", "残差与归一化", 15),
    Box("tokens", DECODER, 330, WIDE, "tokens so far", "已有的词元"),
    Box("embedding", DECODER, 296, WIDE, "embedding", "词嵌入"),
    Box("positions", DECODER, 262, WIDE, "+ positions", "+ 位置编码"),
    Box("causal", DECODER, 220, WIDE, "causal self-attention", "因果自注意力"),
    Box("norm", DECODER, 202, WIDE, "add, norm", "残差与归一化", 15),
    Box("cross", DECODER, 170, WIDE, "cross-attention", "交叉注意力"),
    Box("norm", DECODER, 152, WIDE, "add, norm", "残差与归一化", 15),
    Box("mlp", DECODER, 120, WIDE, "MLP", "前馈网络 MLP"),
    Box("norm", DECODER, 102, WIDE, "add, norm", "残差与归一化", 15),
    Box("logits", DECODER, 50, WIDE, "logits", "词表分数 logits"),
    Box("loss", DECODER, 14, 66, "loss", "损失"),
    Box("choice", DECODER + 74, 14, 66, "next token", "下一词元"),
    Box("cache", CACHE, 220, 96, "cache of k and v", "k、v 缓存"),
    Box("projections", INSIDE, 316, 62, "query", "查询 q"),
    Box("projections", INSIDE + 71, 316, 62, "key", "键 k"),
    Box("projections", INSIDE + 142, 316, 62, "value", "值 v"),
    Box("rotation", INSIDE, 280, 133, "rotate by position", "按位置旋转"),
    Box("scores", INSIDE, 244, 133, "scores q · k", "分数 q · k"),
    Box("scale", INSIDE, 208, 133, "÷ √size", "÷ √头维数"),
    Box("mask", INSIDE, 172, 133, "mask", "掩码"),
    Box("softmax", INSIDE, 136, 133, "softmax", "softmax"),
    Box("mean", INSIDE, 100, 204, "mean of the values", "值的加权平均"),
    Box("heads", INSIDE, 50, 204, "all heads, joined", "拼接各头"),
)
# Frames around boxes: part, x, y, width, height, where the title stands, and the title.
FRAMES = (
    ("encoder", ENCODER - 8, 128, WIDE + 16, 114, (84, 121), "encoder × N layers", "编码器 × N 层"),
    ("decoder", DECODER - 8, 90, WIDE + 16, 163, (392, 108), "decoder × N layers", "解码器 × N 层"),
    ("attention", INSIDE - 18, 14, 240, 344, (590, 36), "inside attention", "注意力内部"),
)
# Lines through points, in the direction of the data.
MIDDLE, DECODES = ENCODER + WIDE // 2, DECODER + WIDE // 2
QUERY, KEY, VALUE = INSIDE + 31, INSIDE + 102, INSIDE + 173
ARROWS = (
    *((x, y, x, y - 8) for x in (MIDDLE, DECODES) for y in (330, 296)),
    *((MIDDLE, 262, MIDDLE, 234), (MIDDLE, 190, MIDDLE, 184), (DECODES, 262, DECODES, 246)),
    *((DECODES, 202, DECODES, 196), (DECODES, 152, DECODES, 146), (DECODES, 102, DECODES, 76)),
    *((DECODER + 33, 50, DECODER + 33, 40), (DECODER + 107, 50, DECODER + 107, 40)),
    (ENCODER + WIDE, 147, 168, 147, 168, 183, DECODER, 183),
    *((CACHE, 233, DECODER + WIDE, 233), (QUERY, 316, QUERY, 306), (KEY, 316, KEY, 306)),
    *((x, 280, x, 270) for x in (QUERY, KEY)),
    *((INSIDE + 66, y, INSIDE + 66, y - 10) for y in (244, 208, 172, 136)),
    *((VALUE, 316, VALUE, 126), (INSIDE + 102, 100, INSIDE + 102, 76)),
)
# Chapter → what is lit.
LIT = {
    0: ("tokens", "embedding"),
    1: ("scores", "softmax", "mean"),
    2: ("scores", "mean"),
    3: ("scale",),
    4: ("scores",),
    5: ("projections",),
    6: ("causal", "mask"),
    7: ("mask",),
    8: ("heads",),
    9: ("projections", "heads"),
    10: ("norm", "mlp"),
    11: ("positions",),
    12: ("positions",),
    13: ("rotation",),
    14: ("encoder", "cross"),
    15: ("loss",),
    16: ("choice",),
    17: ("decoder",),
    18: ("scores", "scale", "mask", "softmax", "mean"),
    19: ("cache",),
}
STYLE = """
text { font: 12px sans-serif; text-anchor: middle; fill: #4a5361 }
rect { fill: #f3f4f6; stroke: #b3bac5 }
.frame rect { fill: none; stroke-dasharray: 4 3 }
path { fill: none; stroke: #7d8694; marker-end: url(#head) }
.lit rect { fill: #ffb703; stroke: #8a4b00; stroke-width: 2 }
.lit text { fill: #2b1700; font-weight: bold }
.frame.lit rect { fill: #fff3d1 }
"""
HEAD = (
    '<marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" '
    'orient="auto"><path d="M0 0 6 3 0 6z" style="fill:#7d8694;stroke:none"/></marker>'
)


def name_of(chapter: int, language: str) -> str:
    return f"model-{chapter:02}-{language}.svg"


def labels(chapter: int, language: str) -> list[str]:
    """Return the names of what a chapter lights, each once, as they stand in its picture."""
    named = {part: (en, zh) for part, *_, en, zh in FRAMES}
    named |= {box.part: (box.en, box.zh) for box in BOXES if box.part != "projections"}
    named["projections"] = ("query, key, value", "查询、键、值")
    return [named[part][LANGUAGES.index(language)] for part in LIT[chapter]]


def link(chapter: int, language: str) -> str:
    """Return the line that shows the picture in its chapter."""
    said = {"en": "The whole model; this chapter: ", "zh": "整个模型中本章的部分\uff1a"}[language]
    parts = {"en": ", ", "zh": "、"}[language].join(labels(chapter, language))
    return f"![{said}{parts}](../pictures/{name_of(chapter, language)})"


def group(part: str, lit: tuple[str, ...], kind: str, shape: str, label: str) -> str:
    style = " ".join([kind, "lit"] if part in lit else [kind])
    return f'<g class="{style}" data-part="{part}">{shape}{label}</g>'


def elements(chapter: int, language: str) -> Iterator[str]:
    """Yield frames, arrows and boxes, so that arrows end upon frames and boxes lie upon both."""
    number, lit = LANGUAGES.index(language), LIT[chapter]
    for part, x, y, width, height, (middle, base), *titles in FRAMES:
        shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
        title = f'<text x="{middle}" y="{base}">{titles[number]}</text>'
        yield group(part, lit, "frame", shape, title)
    for points in ARROWS:
        yield f'<path d="M{" ".join(map(str, points))}"/>'
    for box in BOXES:
        at = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
        size = ' style="font-size:10px"' if box.height < 20 else ""
        middle = f'x="{box.x + box.width / 2:g}" y="{box.y + box.height / 2 + 4:g}"'
        label = f"<text {middle}{size}>{(box.en, box.zh)[number]}</text>"
        yield group(box.part, lit, "box", f'<rect {at} rx="5"/>', label)


def drawn(chapter: int, language: str) -> str:
    inner = "\n".join(elements(chapter, language))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 368" width="720">'
        f"<style>{STYLE}</style><defs>{HEAD}</defs>"
        f'<path d="M0 0h720v368H0z" style="fill:#fff;stroke:none;marker:none"/>\n{inner}\n</svg>\n'
    )


def write() -> None:
    for chapter in LIT:
        for language in LANGUAGES:
            path = PICTURES / name_of(chapter, language)
            path.write_text(drawn(chapter, language), encoding="utf-8")
