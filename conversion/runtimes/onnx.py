"""ONNX files for ONNX Runtime and transformers.js, with Optimum's names."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig

from ..engine.aliases import Batch, Fields
from ..engine.checkpoints import read_json
from ..engine.format import same
from .generating import Graphs, HeldPast, program
from .graphs import DECODER, ENCODER, MODEL, Sizes, parts, quietly, refuse_old_exporters, usual_name
from .proof import EXACT
from .runtime import Running, Runtime, Sequences, Source

GENERATING = """\
import onnxruntime_genai

model = onnxruntime_genai.Model("{name}")
tokenizer = onnxruntime_genai.Tokenizer(model)
options = onnxruntime_genai.GeneratorParams(model)
options.set_search_options(max_length=40)
generator = onnxruntime_genai.Generator(model, options)
generator.append_tokens(tokenizer.encode("Some text"))
while not generator.is_done():
    generator.generate_next_token()
print(tokenizer.decode(generator.get_sequence(0)))"""
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
    marks = ("model.onnx", "decoder_model.onnx")
    tolerance = {"float32": EXACT}

    def refuse(self, source: Source) -> None:
        refuse_old_exporters()

    def write(self, source: Source, folder: Path) -> None:
        import onnx_ir
        from transformers.exporters import OnnxConfig, OnnxExporter

        for name, part in parts(source).items():
            config = OnnxConfig(dynamic_shapes=part.open_dimensions(), optimize=False)
            with quietly(), torch.no_grad():
                done = OnnxExporter().export(part.module, part.example, config)
                simplify(done.program)
            graph = done.program.graph
            for value in graph.inputs:
                value.name = usual_name(value.name)
            for value in graph.outputs:
                value.name = usual_name(value.name, is_output=True)
            onnx_ir.save(done.program, folder / f"{name}.onnx", external_data=f"{name}.onnx.data")
        if (genai := genai_config(source, folder)) is not None:
            text = json.dumps(genai, indent=2)
            (folder / "genai_config.json").write_text(f"{text}\n", encoding="utf-8")

    def open(self, source: Source, folder: Path) -> Running:
        return OnnxGraphs(source, folder)

    def program(self, source: Source, name: str) -> str:
        return program(source, name, GENERATING, ANSWERING)


def simplify(model: Any) -> None:
    """Fold constants, and drop what is unused or twice there, in a model of onnx_ir.

    The exporter's own optimisation looks for more, with a time that grows with the square of the
    number of nodes: most of the export of a large model. ONNX Runtime finds the same when it opens
    a file.
    """
    from onnx_ir.passes import Sequential, common
    from onnxscript.optimizer import fold_constants_ir

    common.InlinePass()(model)
    fold_constants_ir(model)
    Sequential(
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedFunctionsPass(),
        common.RemoveUnusedOpsetsPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )(model)


def genai_config(source: Source, folder: Path) -> Fields | None:
    """Return the configuration of ONNX Runtime GenAI for a decoder, None for other models.

    It supports one head size for keys and values.
    """
    config, sizes = source.config, Sizes.of(source.config)
    is_decoder = source.generates and not config.is_encoder_decoder
    if not is_decoder or sizes.head_dim != sizes.value_head_dim:
        return None
    generation = read_json(folder / "generation_config.json")
    ids = {name: generation.get(name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {
        "model": {
            **{name: value for name, value in ids.items() if value is not None},
            "context_length": config.max_position_embeddings,
            "type": "decoder",
            "vocab_size": config.vocab_size,
            "decoder": genai_decoder(config, sizes),
        },
        "search": {
            "max_length": config.max_position_embeddings,
            "past_present_share_buffer": False,
            "do_sample": bool(generation.get("do_sample", False)),
            "num_beams": 1,
        },
    }


def genai_decoder(config: PreTrainedConfig, sizes: Sizes) -> Fields:
    inputs, outputs = same("input_ids", "attention_mask", "position_ids"), same("logits")
    for kind in ("key", "value"):
        inputs[f"past_{kind}_names"] = f"past_key_values.%d.{kind}"
        outputs[f"present_{kind}_names"] = f"present.%d.{kind}"
    return {
        "session_options": {"provider_options": []},
        "filename": "model.onnx",
        "head_size": sizes.head_dim,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.kv_heads,
        "inputs": inputs,
        "outputs": outputs,
    }


class OnnxGraphs(Graphs):
    """Opened ONNX files, whose past is a dictionary of tensors by the names of the outputs."""

    def __init__(self, source: Source, folder: Path) -> None:
        import onnxruntime

        super().__init__(source)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()  # its own default is all cores
        self.sessions = {
            name: onnxruntime.InferenceSession(folder / f"{name}.onnx", options)
            for name in (MODEL, ENCODER, DECODER)
            if (folder / f"{name}.onnx").is_file()
        }

    def run(self, part: str, inputs: Batch) -> Batch:
        session = self.sessions[part]
        wanted = {value.name for value in session.get_inputs()}
        feed = {name: x.numpy() for name, x in inputs.items() if name in wanted}
        names = [value.name for value in session.get_outputs()]
        return dict(zip(names, map(torch.from_numpy, session.run(None, feed)), strict=True))

    def step(self, part: str, inputs: Batch, past: HeldPast | None) -> tuple[torch.Tensor, Batch]:
        held = self.empty(part, len(inputs["input_ids"])) if past is None else ordered(past)
        outputs = self.run(part, {**inputs, **held})
        logits = outputs.pop("logits")
        return logits, {
            name.replace("present", "past_key_values"): x for name, x in outputs.items()
        }

    def generate(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences | None:
        """Return None for graphs without a past, as others export them, which only read."""
        part = DECODER if self.config.is_encoder_decoder else MODEL
        return super().generate(prompts, new_tokens, num_beams) if self.empty(part, 1) else None

    def empty(self, part: str, batch: int) -> Batch:
        """Return keys and values without tokens, of the sizes that the graph names."""
        found = {}
        for value in self.sessions[part].get_inputs():
            if value.name.startswith("past_key_values"):
                heads, width = value.shape[1], value.shape[3]
                dtype = torch.float16 if value.type == "tensor(float16)" else torch.float32
                found[value.name] = torch.zeros(batch, heads, 0, width, dtype=dtype)
        return found


def ordered(past: HeldPast) -> Batch:
    if past.order is None:
        return past.held
    return {name: x[past.order] for name, x in past.held.items()}
