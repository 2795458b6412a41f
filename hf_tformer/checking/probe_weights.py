"""Check the tensors of a model, in the fresh process of `check` (probe.py).

Each check takes the `Subject` of probe.py, which loads the model again if necessary.
"""

import shutil
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from probe_errors import Fault, Skip
from torch import nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from probe import Subject


def check_keys(subject: "Subject") -> str:
    """Check that weights and code have the same tensors."""
    model = subject.loaded()
    found = {kind: keys for kind, keys in subject.report.items() if keys}
    if not found:
        return "nothing missing, unexpected or mismatched"
    faults = [f"{kind.replace('_', ' ')}: {few(keys)}" for kind, keys in found.items()]
    if "unexpected_keys" in found:
        remedy = "let the code name its tensors as the file does"
        remedy += "" if len(found) > 1 else ", and config.json count its layers"
    elif ties := undeclared_ties(model, found["missing_keys"]):
        remedy = f"declare _tied_weights_keys = {ties}"
    else:
        remedy = "save the whole model again"
    raise Fault(f"{'; '.join(faults)}: {remedy}")


def undeclared_ties(model: PreTrainedModel, missing: list[str]) -> dict[str, str]:
    """Return target → source of the missing parameters that a new model shares with others."""
    groups = shared(type(model)(deepcopy(model.config)))
    sources = {n: min({*group} - {*missing}, default="") for group in groups for n in group}
    found = {name: sources.get(name, "") for name in missing}
    return found if all(found.values()) else {}


def check_parameters(subject: "Subject") -> str:
    """Check that each parameter, filled with its own number, is the same after save and load."""
    subject.loaded()
    model, _ = subject.load()
    parameters = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
    with torch.no_grad():
        for index, parameter in enumerate(parameters.values()):
            parameter.fill_((index + 1) / 64)
    folder = subject.work / "filled"
    save(subject, model, folder)
    again = dict(type(model).from_pretrained(folder, dtype=torch.float32).named_parameters())
    shutil.rmtree(folder)  # it is held in memory
    changed = [n for n, p in parameters.items() if n not in again or not torch.equal(p, again[n])]
    if changed:
        raise Fault(
            f"{few(changed)} differ after save and load: in _init_weights use the functions of "
            "transformers.initialization, which leave loaded weights alone"
        )
    return f"{len(parameters)} equal after save and load"


def check_buffers(subject: "Subject") -> str:
    """Check that tensors that are computed and not saved have the same values after loading."""
    model = subject.loaded()
    if lost := [name for name, tensor in plain_tensors(model) if tensor.is_meta]:
        raise Fault(f"{few(lost)} have no values after loading: compute them in forward")
    fresh = dict(computed_buffers(type(model)(deepcopy(model.config))))
    if not fresh:
        return "all are saved"
    wrong = [n for n, b in computed_buffers(model) if not torch.equal(b, fresh[n])]
    if wrong:
        subject.silence = "buffers are garbage after loading, which changes all answers: see above"
        other = dict(computed_buffers(type(model)(deepcopy(model.config))))
        if drawn := [n for n in wrong if not torch.equal(fresh[n], other[n])]:
            raise Fault(f"random at each loading: {few(drawn)}: register with persistent=True")
        raise Fault(f"garbage after loading: {few(wrong)}: recompute in _init_weights")
    half, _ = subject.load(dtype=torch.bfloat16)  # `fresh` lives, so its memory is not reused
    for name, buffer in computed_buffers(half):
        if not torch.equal(buffer, fresh[name].to(buffer.dtype)):
            raise Fault(f"garbage after loading with dtype=bfloat16: {name}: see _init_weights")
        if "freq" in name and buffer.dtype != fresh[name].dtype:
            raise Fault(f"{name} is {buffer.dtype} beside bfloat16 weights: compute it in float32")
    return f"{len(fresh)} as computed, in bfloat16 too"


def computed_buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, module in model.named_modules():
        for name in module._non_persistent_buffers_set:
            if (buffer := module._buffers.get(name)) is not None:
                yield f"{path}.{name}".lstrip("."), buffer


def plain_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


def check_ties(subject: "Subject") -> str:
    """Check that input and output share their table exactly if the configuration says so."""
    model = subject.loaded()
    again, _ = subject.load(folder=saved(subject))
    if shared(model) != shared(again):
        raise Fault("which parameters share storage changes by saving: declare _tied_weights_keys")
    output = model.get_output_embeddings()
    expected = getattr(model.config.get_text_config(decoder=True), "tie_word_embeddings", None)
    if output is None or expected is None:
        pairs = "; ".join(" = ".join(names) for names in shared(model))
        return f"{pairs or 'none'}, before and after saving"
    if not isinstance(expected, bool):
        raise Fault(f"tie_word_embeddings is {expected!r} in config.json: write true or false")
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    tied = any(table.data_ptr() == output.weight.data_ptr() for table in tables)
    if tied != expected:
        raise Fault(
            f"tie_word_embeddings is {expected}, but the output projection is "
            f"{'' if tied else 'not '}tied: declare _tied_weights_keys as {{target: source}}"
        )
    return f"{'tied' if tied else 'not tied'}, the same before and after saving"


def shared(model: nn.Module) -> list[list[str]]:
    """Return the names of parameters that are one tensor, in groups."""
    groups: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(parameter.data_ptr(), set()).add(name)
    return sorted(sorted(names) for names in groups.values() if len(names) > 1)


def saved(subject: "Subject") -> Path:
    """Return a second folder, saved by the model that was loaded from the first."""
    folder = subject.work / "second"
    model = subject.loaded()
    if not folder.exists():
        save(subject, model, folder)
    return folder


def save(subject: "Subject", model: PreTrainedModel, folder: Path) -> None:
    """Save a model; skip if that has failed before."""
    if subject.unsaved:
        raise Skip("save_pretrained failed before")
    subject.unsaved = True
    model.save_pretrained(folder)
    subject.unsaved = False


def few(names: Iterable[str], limit: int = 4) -> str:
    names = list(names)
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


WEIGHT_CHECKS = {
    "loading report": check_keys,
    "parameters": check_parameters,
    "buffers": check_buffers,
    "ties": check_ties,
}
