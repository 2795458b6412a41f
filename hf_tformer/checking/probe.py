"""Run a model folder for `check`: the program of the fresh process behind walls (walls.py).

It imports the standard library, torch and transformers; this package cannot be imported, and the
network cannot be reached. Every check runs on the real weights, in float32 on the CPU, so it needs
memory for a few copies of the model; answers count as equal within 1e-4 of their own scale.

It lists the checks (probe_plan.py) before it imports any code of the folder, and reports when each
starts and ends. So its caller knows at which check the process died.
"""

# ruff: noqa: E402 (imports are forbidden before any other module is imported)

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.modules["hf_tformer"] = None  # type: ignore[assignment]  # cannot be imported


def refuse_network(event: str, arguments: tuple) -> None:
    """Refuse the network with a message, which walls do not give, and where there are no walls."""
    if event == "socket.getaddrinfo":
        raise OSError(f"the code reaches for the network: {arguments[:2]}")
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        raise OSError(f"the code reaches for the network: {arguments[1][:2]}")


sys.addaudithook(refuse_network)

import torch
import transformers
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_relative_import_files

sys.path.insert(0, str(Path(__file__).parent))
from probe_answers import ANSWER_CHECKS
from probe_errors import Caution, Fault, Skip, explained
from probe_inputs import ask, compare, main_inputs
from probe_plan import (
    OTHER_FILES,
    OWN_TOKENIZER,
    PREFERENCE,
    SECOND_SAVE,
    TOKENIZER,
    TOKENIZER_FILE,
    is_left_out,
    loads_beside,
    main_auto,
    own_autos,
    planned,
)
from probe_weights import WEIGHT_CHECKS, few, saved

sys.path.pop(0)  # the package's other files must not be found by the code under test

# Fields that transformers sets itself: another value says nothing about the code.
ANY = ("transformers_version", "dtype", "torch_dtype", "_name_or_path", "model_type")
KINDS_OF_KEYS = ("missing_keys", "unexpected_keys", "mismatched_keys")


class Subject:
    """The model under test, loaded once, and how to load it again."""

    def __init__(self, folder: str, work: str) -> None:
        self.folder, self.work = Path(folder), Path(work)
        self.raw_config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        self.contents = {file: content(self.folder / file) for file in OTHER_FILES}
        self.autos = own_autos(self.raw_config) or builtin_autos(self.folder)
        self.auto = main_auto(self.raw_config, self.autos)
        self.model: PreTrainedModel | None = None
        self.report: dict[str, list[str]] = {}
        self.silence = ""  # why no answer of the model is worth a comparison
        self.failed: set[str] = set()  # names of checks
        self.unsaved = False
        self.of_tokenizer: list[str] = []  # the inputs that it makes

    def load(
        self,
        auto: str | None = None,
        folder: Path | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[PreTrainedModel, dict[str, list[str]]]:
        """Return a model in evaluation mode, and the report on its keys."""
        auto_class = getattr(transformers, auto or self.auto)
        model, report = auto_class.from_pretrained(
            folder or self.folder, trust_remote_code=True, dtype=dtype, output_loading_info=True
        )
        return model.eval(), {kind: sorted(map(str, report[kind])) for kind in KINDS_OF_KEYS}

    def lost(self, model: PreTrainedModel, missing: list[str]) -> list[str]:
        """Return the missing parameters of another model that the main model has.

        A body has other prefixes beside other heads, and heads have parts of the same names.
        """
        if self.model is None:
            return []
        ours, theirs = body_prefix(self.model), body_prefix(model)
        names = set(self.model.state_dict()) - set(self.report["missing_keys"])
        names |= {name.removeprefix(ours) for name in names if name.startswith(ours)}
        return [key for key in missing if not {key, key.removeprefix(theirs)}.isdisjoint(names)]

    def loaded(self) -> PreTrainedModel:
        if self.model is None:
            raise Skip(f"{self.auto or 'the model'} does not load")
        return self.model

    def answering(self) -> PreTrainedModel:
        model = self.loaded()
        if self.silence:
            raise Skip(self.silence)
        return model


def content(file: Path) -> object:
    """Return the content of a JSON file, None where there is none that can be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def body_prefix(model: PreTrainedModel) -> str:
    """Return the prefix of a model's body, or of its largest part where that has another name."""
    name = model.base_model_prefix
    if not isinstance(getattr(model, name, None), nn.Module):
        sizes = {n: sum(p.numel() for p in part.parameters()) for n, part in model.named_children()}
        name = max(sizes, key=sizes.__getitem__, default="")
    return f"{name}."


def builtin_autos(folder: Path) -> dict[str, str]:
    """Return the Auto classes of transformers for a model without code of its own."""
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    known = {"AutoConfig": type(config).__name__}
    for name in PREFERENCE:
        mapping = getattr(transformers, name)._model_mapping
        if type(config) in mapping:
            known[name] = mapping[type(config)].__name__
    return known


def check_loads(subject: Subject, auto: str) -> str:
    """Check that the folder opens with one Auto class of its map."""
    if not hasattr(transformers, auto):
        raise Fault(f"transformers {transformers.__version__} has no {auto}: name one that it has")
    if not auto.startswith("AutoModel"):
        opened = getattr(transformers, auto).from_pretrained(subject.folder, trust_remote_code=True)
        if auto == "AutoConfig" and (lost := unkept(subject.raw_config, opened)):
            raise Fault(f"config.json is not kept: {few(lost)}: read each field by its own name")
        return type(opened).__name__
    if not any(path.suffix in (".safetensors", ".bin") for path in subject.folder.iterdir()):
        raise Skip("there are no weights")
    try:
        model, report = subject.load(auto)
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise Fault(of_other_shapes(subject, auto)) from error
    if auto == subject.auto:
        subject.model, subject.report = model, report
        return type(model).__name__
    new = report["missing_keys"]
    if lost := subject.lost(model, new):
        raise Fault(f"not loaded: {few(lost)}: correct base_model_prefix or the names of parts")
    return type(model).__name__ + (f", new: {few(new)}" if new else "")


def unkept(raw: dict, config: PretrainedConfig) -> list[str]:
    """Return the plain fields of config.json that the configuration has with another value."""
    plain = {k: v for k, v in raw.items() if isinstance(v, (int, float, str)) and k not in ANY}
    now = {key: getattr(config, key, value) for key, value in plain.items()}
    return [
        f"{key} {value!r} became {now[key]!r}"
        for key, value in plain.items()
        if isinstance(now[key], (int, float, str)) and now[key] != value
    ]


def of_other_shapes(subject: Subject, auto: str) -> str:
    """Return a sentence on the tensors of the file that do not fit config.json."""
    _, report = getattr(transformers, auto).from_pretrained(
        subject.folder,
        trust_remote_code=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    shapes = [
        f"{name} is {list(there)} in the file and {list(here)} by config.json"
        for name, there, here in sorted(report["mismatched_keys"])
    ]
    return f"{few(shapes, 2)}: correct config.json, such as num_labels and id2label, or save again"


def check_second_save(subject: Subject) -> str:
    """Check that the loaded model saves a folder as complete as its own."""
    folder = saved(subject)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    auto_map = config.get("auto_map") or {}
    if lost := sorted(set(subject.raw_config.get("auto_map") or {}) - set(auto_map)):
        raise Fault(f"its auto_map no longer names {few(lost)}: fill config.auto_map in the code")
    for auto, reference in auto_map.items():
        for name in reference if isinstance(reference, list) else [reference]:
            if name and (lost := unwritten(folder, name)):
                raise Fault(
                    f"{few(lost)}, which {auto} needs, is not written: put the class into the file "
                    "of the main model, or import it there"
                )
    again, _ = subject.load(folder=folder)
    if subject.silence:
        return "with code and auto_map, and opens again; there are no answers to compare"
    inputs = main_inputs(again)
    before, after = (ask(model, **inputs) for model in (subject.loaded(), again))
    compare(before, after, "it answers differently when opened again")
    return "with code and auto_map, and opens again"


def unwritten(folder: Path, reference: str) -> list[str]:
    """Return the missing files among those that a reference of the auto_map needs."""
    entry = folder / f"{reference.split('--')[-1].split('.')[0]}.py"
    if not entry.exists():
        return [entry.name]
    needed = map(Path, get_relative_import_files(entry))
    return [path.name for path in needed if not path.exists()]


def check_tokenizer(subject: Subject) -> str:
    """Check that the tokenizer opens without trust."""
    if not (subject.folder / TOKENIZER_FILE).exists():
        raise Skip(f"there is no {TOKENIZER_FILE}")
    if OWN_TOKENIZER in loads_beside(subject.contents):
        raise Skip(f"it has code of its own, which `{OWN_TOKENIZER}` runs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(subject.folder, trust_remote_code=False)
    subject.of_tokenizer = sorted(tokenizer("a"))
    size = subject.raw_config.get("source_vocab_size") or subject.raw_config.get("vocab_size")
    if size and len(tokenizer) > size:
        raise Fault(f"it has {len(tokenizer)} tokens for a vocab_size of {size}: resize the model")
    if tokenizer.chat_template:
        check_template(tokenizer)
    return f"{type(tokenizer).__name__}, without trust_remote_code"


def check_template(tokenizer: transformers.PreTrainedTokenizerBase) -> None:
    """Check that a chat is rendered, and that each special token in it is one of the tokenizer."""
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    try:
        text = str(tokenizer.apply_chat_template(chat, tokenize=False))
    except Exception as error:  # it may refuse such a chat
        if type(error).__name__ != "TemplateSyntaxError":
            return
        raise Fault(f"the chat template is not Jinja: {explained(error)}") from error
    written = dict.fromkeys(re.findall(r"<\|[^|>\s]+\|>", text))
    unknown = tokenizer.unk_token_id
    if lost := [one for one in written if unknown in tokenizer(one)["input_ids"]]:
        remedy = "add such tokens to the tokenizer"
        raise Fault(f"the chat template writes {few(lost)}, of which nothing is known: {remedy}")


def run(
    name: str, check: Callable[..., str], subject: Subject, *others: object
) -> tuple[str, str, str]:
    """Run one check; return (name, verdict, detail), whatever it raises."""
    try:
        return name, "ok", check(subject, *others)
    except Skip as skip:
        return name, "skip", str(skip)
    except Caution as caution:
        return name, "warn", str(caution)
    except Fault as fault:
        return name, "fail", str(fault)
    except Exception as error:
        is_missing = isinstance(error, ImportError) and "in your environment" in str(error)
        detail = explained(error).replace(f"{subject.folder}/", "")
        return name, "skip" if is_missing else "fail", detail


CHECKS: dict[str, Callable[..., str]] = {
    TOKENIZER: check_tokenizer,
    **WEIGHT_CHECKS,
    **ANSWER_CHECKS,
    SECOND_SAVE: check_second_save,
}


def skip_quantised(subject: Subject) -> str:
    method = subject.raw_config["quantization_config"].get("quant_method")
    raise Skip(f"the weights are quantised by {method}: check the model that they were made from")


def main(say: Callable[[object], None], folder: str, work: str) -> None:
    subject = Subject(folder, work)
    names = planned(subject.raw_config, subject.autos, subject.contents)
    say(["plan", names])
    for name in names:
        say([name, "running", ""])
        if is_left_out(name, subject.raw_config, subject.auto):
            verdict = run(name, skip_quantised, subject)
        elif name in CHECKS:
            verdict = run(name, CHECKS[name], subject)
        else:
            verdict = run(name, check_loads, subject, name.removeprefix("loads: "))
        if verdict[1] == "fail":
            subject.failed.add(name)
        say(verdict)
