"""Save the answers of every head of a folder: the program of a fresh process behind walls.

    main(say, FOLDER, ANSWERS)

same_answers.py runs it once for each of two folders and compares the files of answers. It imports
torch and transformers alone. The inputs are made from config.json, not by the code that answers
them. Parameters that the checkpoint lacks are filled by their names, so that both processes fill
them alike. Every head runs on the real weights, in float32 on the CPU.
"""

# ruff: noqa: E402 (imports are forbidden before any other module is imported)

import inspect
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.modules["hf_tformer"] = None  # type: ignore[assignment]  # cannot be imported

import torch
import transformers
from safetensors.torch import save
from transformers import PreTrainedModel

LENGTHS = (19, 11)  # of the sequences in a batch
TARGET = 7
NEW_TOKENS = 8


def main(say: Callable[[object], None], folder: str, answers: str) -> None:
    config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    found = {}
    for auto in sorted(name for name in config["auto_map"] if name.startswith("AutoModel")):
        say(["head", auto])
        for question, answer in attempts(folder, auto, config):
            if isinstance(answer, str):
                say(["error", auto, question, answer])
            else:
                found[f"{auto}/{question}"] = answer.contiguous()
    Path(answers).write_bytes(save(found))  # save_file would replace the file, which is refused


def attempts(folder: str, auto: str, config: dict) -> Iterator[tuple[str, torch.Tensor | str]]:
    """Yield (question, tensor), or (question, message) for an error."""
    try:
        model = opened(folder, auto)
    except Exception as error:
        yield "loading", message_of(error)
        return
    for question, ask in questions(model, config).items():
        try:
            yield from ((f"{question}: {name}", answer) for name, answer in ask().items())
        except Exception as error:
            yield question, message_of(error)


def message_of(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


@torch.no_grad()
def opened(folder: str, auto: str) -> PreTrainedModel:
    model, report = getattr(transformers, auto).from_pretrained(
        folder, trust_remote_code=True, dtype=torch.float32, output_loading_info=True
    )
    tensors = model.state_dict(keep_vars=True)
    for name in report["missing_keys"]:
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        tensors[name].normal_(0, 0.05, generator=generator)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = 0  # a head that classifies sequences finds their ends by it
    return model.eval()


def questions(model: PreTrainedModel, config: dict) -> dict[str, partial]:
    sequences = random_sequences(config)
    batches = {"one sequence": padded(sequences[:1], "right", config)}
    sides = ("right",) if model.config.is_encoder_decoder else ("left", "right")
    for side in sides:
        batches[f"a batch padded on the {side}"] = padded(sequences, side, config)
    asked = {name: partial(outputs, model, inputs) for name, inputs in batches.items()}
    if model.can_generate():
        for name in ("one sequence", f"a batch padded on the {sides[0]}"):
            asked[f"greedy tokens of {name}"] = partial(written, model, batches[name])
    return asked


def random_sequences(config: dict) -> list[torch.Tensor]:
    sizes = [config[name] for name in ("vocab_size", "source_vocab_size") if config.get(name)]
    room = config.get("max_position_embeddings") or 10**6
    generator = torch.Generator().manual_seed(0)
    lengths = [max(1, min(length, room - NEW_TOKENS)) for length in LENGTHS]
    return [torch.randint(min(sizes), (length,), generator=generator) for length in lengths]


def padded(sequences: list[torch.Tensor], side: str, config: dict) -> dict[str, torch.Tensor]:
    width = max(map(len, sequences))
    ids = torch.full((len(sequences), width), config.get("pad_token_id") or 0)
    mask = torch.zeros_like(ids)
    for i, sequence in enumerate(sequences):
        place = slice(width - len(sequence), None) if side == "left" else slice(len(sequence))
        ids[i, place], mask[i, place] = sequence, 1
    return {"input_ids": ids, "attention_mask": mask}


@torch.no_grad()
def outputs(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return every tensor that a head answers with; answers for padding are replaced by 0."""
    mask = inputs["attention_mask"]
    parameters = inspect.signature(model.forward).parameters
    if model.config.is_encoder_decoder and "decoder_input_ids" in parameters:
        inputs = {**inputs, "decoder_input_ids": inputs["input_ids"][:, :TARGET].flip(1)}
    found = {}
    for name, value in model(**inputs).items():
        if isinstance(value, torch.Tensor):
            if value.shape[:2] == mask.shape:
                value = value.masked_fill(mask.view(*mask.shape, *[1] * (value.ndim - 2)) == 0, 0)
            found[name] = value.clone()
    return found


def written(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
    return {"ids": model.generate(**inputs, **options)}
