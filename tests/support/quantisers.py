"""What others' packages make of our models on a CPU: a row for each way to quantise.

`table()` is the section of docs/USE_ELSEWHERE.md; test_quantisers.py holds every row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from transformers import BitsAndBytesConfig, HqqConfig, QuantoConfig, TorchAoConfig


@dataclass(frozen=True)
class Row:
    """A quantiser. `settings` imports its package, so it is called where that is there.

    `within` is how far logits may be from those in float32, as a part of the largest; None where
    the model is refused. `refusal` is who refuses to open (or to save) it, `words` in which words.
    """

    package: str
    settings: Callable[[], object]
    within: float | None
    refusal: str = ""
    words: str = ""
    remark: str = ""

    @property
    def opens(self) -> bool:
        return self.within is not None

    @property
    def saves(self) -> bool:
        return self.opens and not self.refusal

    def writes(self, family) -> bool:
        """Whether texts can be asked of it, as soon as it is quantised."""
        return self.opens

    def open(self, auto: type, folder):
        settings = self.settings()
        return auto.from_pretrained(folder, quantization_config=settings, trust_remote_code=True)


class Scheme(Row):
    """llm-compressor quantises a model that is there; its `settings` are the name of a scheme."""

    def writes(self, family):
        return family.name != "seq2seq"

    def open(self, auto, folder):
        from llmcompressor import oneshot
        from llmcompressor.modifiers.quantization import QuantizationModifier

        model = auto.from_pretrained(folder, trust_remote_code=True)
        recipe = QuantizationModifier(
            targets="Linear", scheme=self.settings(), ignore=["re:.*lm_head"]
        )
        oneshot(model=model, recipe=[recipe])
        return model


def torchao(name: str, module: str = "torchao.quantization", **options) -> Callable[[], object]:
    return lambda: TorchAoConfig(getattr(import_module(module), name)(**options))


def in_groups(name: str, granularity: str) -> Callable[[], object]:
    def settings():
        from torchao.quantization import PerGroup

        return torchao(name, weight_dtype=torch.int4, **{granularity: PerGroup(32)})()

    return settings


def four_bit(kind: str, twice: bool) -> Callable[[], object]:
    return lambda: BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=twice
    )


AGAIN = "saved a second time with `save_original_format=False`"
FIRST = f"save it before it answers (see below); {AGAIN}"
UNPACKED = f"a byte for each number in memory; {AGAIN}"
DEQUANTISED = (
    "an encoder-decoder writes once it is saved and opened with "
    "`quantization_config=CompressedTensorsConfig(dequantize=True)`, as BART does; "
    "a mixture is not opened again with its experts: quantise it where it is opened"
)
NOT_SAVED = "quantise again where it is opened"
ROWS = {
    "torchao `Int8WeightOnlyConfig`": Row(
        "torchao", torchao("Int8WeightOnlyConfig"), 0.01, remark=AGAIN
    ),
    "torchao `Int8DynamicActivationInt8WeightConfig`": Row(
        "torchao", torchao("Int8DynamicActivationInt8WeightConfig"), 0.02, remark=AGAIN
    ),
    "torchao `Float8WeightOnlyConfig`": Row(
        "torchao", torchao("Float8WeightOnlyConfig"), 0.05, remark=AGAIN
    ),
    "torchao `IntxWeightOnlyConfig`, int4": Row(
        "torchao", in_groups("IntxWeightOnlyConfig", "granularity"), 0.25, remark=UNPACKED
    ),
    "torchao `Int8DynamicActivationIntxWeightConfig`, int4": Row(
        "torchao",
        in_groups("Int8DynamicActivationIntxWeightConfig", "weight_granularity"),
        0.25,
        remark=UNPACKED,
    ),
    "torchao `PrototypeInt4WeightOnlyConfig`": Row(
        "torchao",
        torchao("PrototypeInt4WeightOnlyConfig", "torchao.prototype.quantization.int4"),
        0.25,
        refusal="torchao",
        words="Unsupported tensor type",
        remark=NOT_SAVED,
    ),
    "torchao `Int4WeightOnlyConfig`": Row(
        "torchao",
        torchao("Int4WeightOnlyConfig"),
        None,
        refusal="torchao",
        words="encountered some issues during automatic conversion",
        remark="needs a GPU (mslk)",
    ),
    "bitsandbytes 8-bit": Row(
        "bitsandbytes", lambda: BitsAndBytesConfig(load_in_8bit=True), 0.02, remark=AGAIN
    ),
    **{
        f"bitsandbytes {kind}{', double' if twice else ''}": Row(
            "bitsandbytes", four_bit(kind, twice), 0.25, remark=FIRST
        )
        for kind in ("nf4", "fp4")
        for twice in (False, True)
    },
    **{
        f"llm-compressor {scheme}": Scheme(
            "llmcompressor", lambda s=scheme: s, within, remark=DEQUANTISED
        )
        for scheme, within in (("W8A16", 0.01), ("W8A8", 0.03), ("W4A16", 0.25))
    },
    **{
        f"quanto {kind}": Row(
            "optimum.quanto",
            lambda kind=kind: QuantoConfig(weights=kind),
            within,
            refusal="transformers",
            words="is not serializable",
            remark=NOT_SAVED,
        )
        for kind, within in (("int8", 0.01), ("float8", 0.05), ("int4", 0.25))
    },
    "HQQ": Row(
        "hqq",
        lambda: HqqConfig(nbits=4, group_size=64),
        None,
        refusal="transformers",
        words="QuantizationMethod.HQQ is not available yet",
        remark="transformers 5.23 lacks it",
    ),
}


def table() -> str:
    """In Markdown: what a user may expect of each."""
    lines = ["| quantiser | answers | logits within | saved and opened again | |"]
    lines += ["|---|---|---|---|---|"]
    for name, row in ROWS.items():
        near = f"{row.within:.0%}" if row.opens else ""
        refused = f"{row.refusal} refuses"
        opens = "yes" if row.opens else refused
        saves = "the same bits" if row.saves else refused if row.opens else ""
        lines.append(f"| {name} | {opens} | {near} | {saves} | {row.remark} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
