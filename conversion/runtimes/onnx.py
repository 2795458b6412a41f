"""ONNX files, as ONNX Runtime and transformers.js read them; the names are Optimum's."""

from pathlib import Path

import torch

from .generating import HeldPast
from .graphs import DECODER, ENCODER, MODEL, Graphs, Sizes, parts, quietly, usual_name
from .proof import EXACT
from .runtime import Batch, Running, Runtime, Source

ANSWERING = """\
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{name}/model.onnx")
ids = np.array([[3, 4, 5]])
answer = session.run(None, {{"input_ids": ids, "attention_mask": np.ones_like(ids)}})[0]
print(answer.shape)"""


class Onnx(Runtime):
    name = "onnx"
    title = "ONNX Runtime"
    packages = ("onnx", "onnxruntime", "onnxscript")
    extra = "onnx"
    library_name = "onnx"
    tolerance = {"float32": EXACT}

    def refuse(self, source: Source) -> None:
        pass

    def write(self, source: Source, folder: Path) -> None:
        import onnx_ir
        from transformers.exporters import OnnxConfig, OnnxExporter

        for name, part in parts(source).items():
            config = OnnxConfig(dynamic_shapes=part.open_dimensions())
            with quietly(), torch.no_grad():
                done = OnnxExporter().export(part.module, part.example, config)
            graph = done.program.graph
            for value in graph.inputs:
                value.name = usual_name(value.name)
            for value in graph.outputs:
                value.name = usual_name(value.name, is_output=True)
            onnx_ir.save(done.program, folder / f"{name}.onnx", external_data=f"{name}.onnx.data")

    def open(self, source: Source, folder: Path) -> Running:
        return OnnxGraphs(source, folder)

    def program(self, source: Source, name: str) -> str:
        return ANSWERING.format(name=name)


class OnnxGraphs(Graphs):
    """The past is a dictionary of arrays, by the names of the outputs."""

    def __init__(self, source: Source, folder: Path):
        import onnxruntime

        super().__init__(source)
        self.sessions = {
            name: onnxruntime.InferenceSession(folder / f"{name}.onnx")
            for name in (MODEL, ENCODER, DECODER)
            if (folder / f"{name}.onnx").is_file()
        }
        self.sizes = Sizes.of(source.config)

    def run(self, part: str, inputs: Batch) -> Batch:
        session = self.sessions[part]
        wanted = {value.name for value in session.get_inputs()}
        feed = {name: x.numpy() for name, x in inputs.items() if name in wanted}
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, map(torch.from_numpy, session.run(None, feed)), strict=True))

    def step(self, part: str, inputs: Batch, past: HeldPast | None) -> tuple[torch.Tensor, Batch]:
        rows = len(inputs["input_ids"])
        names = [value.name for value in self.sessions[part].get_inputs()]
        held = self.empty(names, rows) if past is None else ordered(past)
        outputs = self.run(part, {**inputs, **held})
        logits = outputs.pop("logits")
        return logits, {
            name.replace("present", "past_key_values"): x for name, x in outputs.items()
        }

    def empty(self, names: list[str], rows: int) -> Batch:
        key, value = self.sizes.empty(rows)
        cached = [name for name in names if name.startswith("past_key_values")]
        return {name: key if name.endswith("key") else value for name in cached}


def ordered(past: HeldPast) -> Batch:
    if past.order is None:
        return past.held
    return {name: x[past.order] for name, x in past.held.items()}
