"""Ask a folder's model for its answers: the program of a fresh process behind walls.

    main(say, FOLDER, ANSWERS, AUTO, HOW, PROMPTS)

It runs in the transformers of any interpreter, from 4.30 on, so it imports torch and transformers
alone. `HOW` is "built" where the code of a folder makes a model that is then filled, which works
for code from before transformers built models without memory, and "opened" where from_pretrained
has to succeed. Each prompt is asked alone: no old code is asked what it does with padding.
"""

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save

NEW_TOKENS = 12


def main(
    say: Callable[[object], None], folder: str, answers: str, auto: str, how: str, prompts: str
) -> None:
    say(["versions", transformers.__version__, torch.__version__])
    found: dict[str, torch.Tensor] = {}
    make = {"built": built, "opened": opened}[how]
    try:
        with torch.no_grad():
            model = make(folder, getattr(transformers, auto)).float().eval()
            for ids in json.loads(prompts):
                found |= outputs(model, torch.tensor([ids]))
            if auto == "AutoModelForCausalLM":
                found |= texts(model, torch.tensor([json.loads(prompts)[0]]), say)
    except Exception as error:
        say(["error", *described(error, folder)])
    Path(answers).write_bytes(save({name: found[name].contiguous() for name in found}))


def described(error: Exception, folder: str) -> tuple[str, str]:
    """Return the error in one line, and where the code of the folder raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    name = Path(folder).name
    own = [frame for frame in frames if name in frame.filename or "modules" in frame.filename]
    place = f"{Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}", place


def built(folder: str, auto: Any) -> torch.nn.Module:
    """Make the model by its configuration, then fill it: no tensor may be missing or left over."""
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    config.use_cache = True
    model = auto.from_config(config, trust_remote_code=True)
    tied = getattr(model, "tie_weights", lambda: None)
    tied()
    missing, left = model.load_state_dict(state_of(Path(folder)), strict=False)
    tied()
    tensors = dict(model.named_parameters(remove_duplicate=False))
    filled = {id(tensor) for name, tensor in tensors.items() if name not in missing}
    lacking = [name for name, tensor in tensors.items() if id(tensor) not in filled]
    if lacking or left:
        raise ValueError(f"weights are missing ({lacking[:3]}) or left over ({left[:3]})")
    return model


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        state |= load_file(file)
    for file in () if state else sorted(folder.glob("pytorch_model*.bin")):
        state |= torch.load(file, map_location="cpu", weights_only=True)
    return {name: t.float() if t.is_floating_point() else t for name, t in state.items()}


def opened(folder: str, auto: Any) -> torch.nn.Module:
    model, report = auto.from_pretrained(
        folder, trust_remote_code=True, dtype=torch.float32, output_loading_info=True
    )
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[what]:
            raise ValueError(f"{what} of the weights: {sorted(map(str, report[what]))[:3]}")
    return model


def outputs(model: torch.nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the answer and the hidden states of one prompt, which all have no batch."""
    length = ids.shape[1]
    found = {f"{length} tokens": answer_of(asked(model, ids))}
    try:
        states = asked(model, ids, output_hidden_states=True, return_dict=True).hidden_states
    except (TypeError, AttributeError):
        states = None
    for number, state in enumerate(states or ()):
        found[f"{length} tokens, hidden state {number}"] = state.reshape(length, -1).clone()
    return found


def asked(model: torch.nn.Module, ids: torch.Tensor, **more: Any) -> Any:
    """Call the model; some code needs a mask, or does not run with a cache."""
    ways: tuple[dict, ...] = ({}, {"use_cache": False}, {"attention_mask": torch.ones_like(ids)})
    errors: list[Exception] = []
    for way in ways:
        try:
            return model(input_ids=ids, **way, **more)
        except Exception as error:
            errors.append(error)
    raise errors[0]


def answer_of(output: Any) -> torch.Tensor:
    """Return logits, or hidden states of a model without a head; a plain tuple has them first."""
    for name in ("logits", "last_hidden_state"):
        if getattr(output, name, None) is not None:
            return getattr(output, name)[0].clone()
    return (output[0] if isinstance(output, (tuple, dict)) else output)[0].clone()


def texts(model: Any, ids: torch.Tensor, say: Callable[[object], None]) -> dict[str, torch.Tensor]:
    """Return greedy text without a cache, and what generate writes with one, if it runs."""
    whole = ids
    for _ in range(NEW_TOKENS):
        best = answer_of(asked(model, whole))[-1].argmax()
        whole = torch.cat((whole, best.view(1, 1)), dim=1)
    found = {"greedy text": whole[0]}
    limits = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}
    try:
        found["text of generate"] = model.generate(ids, do_sample=False, **limits)[0]
    except Exception as error:
        say(["generate", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"])
    return found


if __name__ == "__main__":
    main(lambda line: print("SAY", json.dumps(line)), *sys.argv[1:])
