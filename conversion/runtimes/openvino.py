"""OpenVINO files with the names of OpenVINO GenAI and Optimum, and with tokenizer graphs.

The past is inside: a graph keeps it until it is reset.
"""

import contextlib
from pathlib import Path

import torch

from ..engine.aliases import Batch
from .generating import Graphs, HeldPast, program
from .graphs import DECODER, ENCODER, MODEL, parts, quietly, refuse_old_exporters
from .proof import EXACT
from .runtime import Running, Runtime, Source

# Without these hints, processors with bfloat16 units multiply in bfloat16.
FULL_PRECISION = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
FILE = "openvino_{}.xml"

GENERATING = """\
import openvino_genai

pipeline = openvino_genai.LLMPipeline("{name}", "CPU", INFERENCE_PRECISION_HINT="f32")
print(pipeline.generate("Some text", max_new_tokens=20))"""
ANSWERING = """\
import numpy as np
import openvino

exact = {{"INFERENCE_PRECISION_HINT": "f32"}}
model = openvino.compile_model("{name}/openvino_model.xml", "CPU", exact)
ids = np.array([[3, 4, 5]])
answer = model({{"input_ids": ids, "attention_mask": np.ones_like(ids)}})
print(answer[0].shape)"""


class OpenVino(Runtime):
    name = "openvino"
    title = "OpenVINO"
    packages = ("openvino", "openvino_tokenizers")
    extra = "openvino"
    library_name = "openvino"
    marks = (FILE.format(MODEL), FILE.format(DECODER))
    tolerance = {"float32": EXACT, "float16": 1e-2}

    def refuse(self, source: Source) -> None:
        refuse_old_exporters()

    def write(self, source: Source, folder: Path) -> None:
        import openvino
        from transformers.exporters import OpenVINOConfig, OpenVINOExporter

        for name, part in parts(source, keeps_source_keys=False).items():
            config = OpenVINOConfig(dynamic_shapes=part.open_dimensions())
            with quietly(), torch.no_grad():
                done = OpenVINOExporter().export(part.module, part.example, config)
            is_half = source.dtype == "float16"
            openvino.save_model(done.program, folder / FILE.format(name), compress_to_fp16=is_half)
        write_tokenizer(source, folder)

    def open(self, source: Source, folder: Path) -> Running:
        return OpenVinoGraphs(source, folder)

    def program(self, source: Source, name: str) -> str:
        return program(source, name, GENERATING, ANSWERING)


def write_tokenizer(source: Source, folder: Path) -> None:
    """Write the tokenizer as two graphs, which GenAI needs, if it can be converted.

    openvino_tokenizers fails in many ways for other tokenizers, whose own files are there anyway.
    """
    if source.tokenizer is None:
        return
    import openvino
    from openvino_tokenizers import convert_tokenizer

    with contextlib.suppress(Exception), quietly():
        both = convert_tokenizer(source.tokenizer, with_detokenizer=True)
        for name, graph in zip(("tokenizer", "detokenizer"), both, strict=True):
            openvino.save_model(graph, folder / FILE.format(name), compress_to_fp16=False)


class OpenVinoGraphs(Graphs):
    """Opened OpenVINO files."""

    def __init__(self, source: Source, folder: Path) -> None:
        import openvino

        super().__init__(source)
        core = openvino.Core()
        exact = {**FULL_PRECISION, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        self.requests = {
            name: core.compile_model(
                folder / FILE.format(name), "CPU", exact
            ).create_infer_request()
            for name in (MODEL, ENCODER, DECODER)
            if (folder / FILE.format(name)).is_file()
        }

    def run(self, part: str, inputs: Batch) -> Batch:
        request = self.requests[part]
        wanted = {port.get_any_name() for port in request.model_inputs}
        feed = {name: x.numpy() for name, x in inputs.items() if name in wanted}
        outputs = request.infer(feed)
        names = [port.get_any_name() for port in request.model_outputs]
        return {name: torch.from_numpy(outputs[name].copy()) for name in names}

    def step(self, part: str, inputs: Batch, past: HeldPast | None) -> tuple[torch.Tensor, None]:
        order = torch.arange(len(inputs["input_ids"]))
        if past is None:
            self.requests[part].reset_state()
        elif past.order is not None:
            order = past.order
        return self.run(part, {**inputs, "beam_idx": order.int()})["logits"], None
