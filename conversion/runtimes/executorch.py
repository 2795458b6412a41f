"""ExecuTorch programs, lowered to XNNPACK, with the methods that ExecuTorch's own runners call.

A decoder computes one sequence at a time and keeps its past inside; so does an encoder-decoder,
with a method for each stack. All other models take padded batches.
"""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from hf_tformer.model.layer_types import is_by_layer_type

from ..engine.errors import ConversionError
from .executorch_methods import BATCH, inputs_of, largest_chunk, largest_length, methods
from .executorch_program import Program
from .graphs import quietly, refuse_old_exporters
from .proof import EXACT
from .runtime import Running, Runtime, Source

FILE = "model.pte"
GENERATING = """\
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

# A sequence may have {room} tokens, generated ones included.
runner = TextLLMRunner("{name}/model.pte", "{name}/tokenizer.json")
runner.generate("Some text", GenerationConfig(max_new_tokens=20, temperature=0.0), print)"""
TRANSLATING = """\
import torch
from executorch.runtime import Runtime

program = Runtime.get().load_program("{name}/model.pte")
encoder, decoder = program.load_method("encoder"), program.load_method("text_decoder")
# The source may have {read} tokens, the output {room}.
states = encoder.execute([torch.tensor([[3, 4, 5]])])[0]
token = {start}
for place in range(20):
    logits = decoder.execute([torch.tensor([[token]]), states, torch.tensor([place])])[0]
    token = logits[0, -1].argmax().item()
    print(token)"""
ANSWERING = """\
import torch
from executorch.runtime import Runtime

# {limits}
method = Runtime.get().load_program("{name}/model.pte").load_method("forward")
ids = torch.tensor([[3, 4, 5]])
print(method.execute([{inputs}])[0].shape)"""

EXAMPLES = {
    "input_ids": "ids",
    "attention_mask": "torch.ones_like(ids)",
    "token_type_ids": "torch.zeros_like(ids)",
}


class Executorch(Runtime):
    name = "executorch"
    title = "ExecuTorch"
    packages = ("executorch",)
    extra = "executorch"
    library_name = "executorch"
    marks = (FILE,)
    tolerance = {"float32": EXACT}

    def refuse(self, source: Source) -> None:
        config = source.config
        source.refuse_experts(self.title)
        if (cap := getattr(config, "attn_logit_softcapping", None)) is not None:
            raise ConversionError(
                f"attn_logit_softcapping is {cap}, which ExecuTorch's attention does not support: "
                "export to onnx or openvino"
            )
        rope = getattr(config, "rope_parameters", None) or {}
        for one in rope.values() if is_by_layer_type(rope) else (rope,):
            if one.get("rope_type") == "dynamic":
                raise ConversionError(
                    "rope_type is 'dynamic', whose frequencies depend on the length of a sequence, "
                    "and a traced graph keeps those of its example: choose 'yarn' or 'linear'"
                )
        refuse_old_exporters()  # their caches count differently

    def write(self, source: Source, folder: Path) -> None:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        model = source.model()
        with quietly(), torch.no_grad():
            program = to_edge_transform_and_lower(
                {name: method.trace() for name, method in methods(model).items()},
                partitioner=[XnnpackPartitioner()],
                constant_methods=facts(model) if source.generates else None,
            ).to_executorch()
        with (folder / FILE).open("wb") as file:
            program.write_to_file(file)

    def open(self, source: Source, folder: Path) -> Running:
        return Program(source, folder / FILE)

    def program(self, source: Source, name: str) -> str:
        config = source.config
        read, generated = (largest_length(config, generates) for generates in (False, True))
        if not source.generates:
            limits = f"A batch may have {BATCH} sequences of {read} tokens."
            inputs = ", ".join(EXAMPLES[one] for one in inputs_of(config))
            return ANSWERING.format(name=name, inputs=inputs, limits=limits)
        if config.is_encoder_decoder:
            start = config.decoder_start_token_id
            return TRANSLATING.format(name=name, start=start, read=read, room=generated)
        if source.tokenizer is not None:
            return GENERATING.format(name=name, room=generated)
        limits = f"The next tokens of one sequence, and their positions: below {generated}."
        return ANSWERING.format(name=name, inputs="ids, torch.arange(3)", limits=limits)


def facts(model: PreTrainedModel) -> dict[str, object]:
    """Return the constants that ExecuTorch's runners read from a program that generates."""
    begin, end = model.generation_config.bos_token_id, model.generation_config.eos_token_id
    return {
        **({} if begin is None else {"get_bos_id": begin}),
        "get_eos_ids": [end] if isinstance(end, int) else list(end or []),
        "get_vocab_size": model.config.vocab_size,
        "get_max_seq_len": largest_chunk(model.config),
        "get_max_context_len": largest_length(model.config, True),
        "enable_dynamic_shape": True,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
    }
