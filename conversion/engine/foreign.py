"""Name the files and folders of other programs, with what to run before they are imported.

Nothing is unpickled here: names of files, their first bytes and one key of Lightning decide.
"""

import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hf_tformer.command_line import did_you_mean
from hf_tformer.file_integrity import UNREADABLE, fault_of_text, json_object

from .aliases import FilePath
from .checkpoints import FILES
from .errors import ConversionError

SHOWN = 3
HUB = re.compile(r"(?:https?://(?:www\.)?huggingface\.co/|hf://)?([\w-][\w.-]*/[\w-][\w.-]*)/?")
LIGHTNING = b"pytorch-lightning_version"
PICKLE_BYTES = 2**24  # of a description in a file of torch.save
MAGIC = {b"GGUF": ".gguf", b"\x89HDF\r\n\x1a\n": ".h5"}
WEIGHTS = ("*.safetensors", "*.pt", "*.pth", "*.bin", "*.ckpt", "*.chkpt")

EXPORTED = (
    "whose tensors no longer have the names of a model: convert the folder that it was exported "
    "from"
)
OLD_LIBRARY = (
    "run {model_class}.from_pretrained('{folder}', {flag}=True).save_pretrained('NEW') with "
    "transformers 4 and {package}, and import NEW"
)
TENSORFLOW = OLD_LIBRARY.replace("{flag}", "from_tf").replace("{package}", "TensorFlow")
FLAX = OLD_LIBRARY.replace("{flag}", "from_flax").replace("{package}", "Flax")
GGUF = "run `tformer convert import {path} NEW`, which needs `pip install gguf`, and give NEW"
ADAPTERS = (
    "run AutoPeftModelForCausalLM.from_pretrained('{folder}').merge_and_unload()"
    ".save_pretrained('NEW') of peft, which needs adapter_config.json, and import NEW"
)
DEEPSPEED = (
    "run `python -m deepspeed.utils.zero_to_fp32 {folder} NEW --safe_serialization`, put the "
    "config.json of the model into NEW, and import NEW"
)
TORCHTUNE = (
    "import the folder epoch_N that its FullModelHFCheckpointer writes, or the file epoch_N/*.bin "
    "that its FullModelTorchTuneCheckpointer writes, or save the tensors of all hf_model_*.pt as "
    "one pytorch_model.bin beside the config.json of the model"
)


@dataclass(frozen=True)
class Foreign:
    """Something that another program writes: how it is found, what it is, and the remedy.

    `marks` are the endings of a file, one of which it has, or patterns in a folder, all of which it
    has. The remedy may name {path}, {folder}, {name} and {model_class}.
    """

    marks: tuple[str, ...]
    what: str
    remedy: str = ""

    def refusal(self, path: Path) -> ConversionError:
        found = path if path.is_file() else next(path.glob(self.marks[0]), path)
        remedy = self.remedy.format(
            path=path,
            folder=path.parent if path.is_file() else path,
            name=found.name,
            model_class=model_class_of(found.parent),
        )
        separator = ", " if remedy.startswith("whose") else ": "
        return ConversionError(f"{path} is {self.what}{separator}{remedy}")


IN_FILES = (
    Foreign((".gguf",), "a GGUF file", GGUF),
    Foreign((".h5", ".keras"), "a file of TensorFlow", TENSORFLOW),
    Foreign((".msgpack",), "a file of Flax", FLAX),
    Foreign((".onnx", ".ort"), "an ONNX graph", EXPORTED),
    Foreign((".xml",), "a model of OpenVINO", EXPORTED),
    Foreign((".pte",), "a program of ExecuTorch", EXPORTED),
    Foreign((".pt2",), "a program of torch.export", EXPORTED),
    Foreign((".distcp",), "one part of a distributed checkpoint", "give its folder, {folder}"),
    Foreign((".tar", ".tgz", ".gz", ".zip", ".zst"), "an archive", "unpack it, and import that"),
)
ADAPTER_FOLDER = Foreign(("adapter_config.json",), "a folder of adapters", ADAPTERS)
IN_FOLDERS = (
    Foreign(
        ("lit_model.pth.*",),
        "a folder of adapters of LitGPT, which needs its model",
        "run `litgpt merge_lora {folder}`, and import it again",
    ),
    Foreign(
        ("pytorch_model_fsdp_*",),
        "a checkpoint of accelerate, whose weights FSDP has sharded",
        "run `accelerate merge-weights {folder}/{name} NEW`, put the config.json of the model "
        "into NEW, and import NEW",
    ),
    Foreign(
        (".metadata", "*.distcp"),
        "a distributed checkpoint of torch",
        "run `python -m torch.distributed.checkpoint.format_utils dcp_to_torch {folder} "
        "weights.pt`, and import weights.pt",
    ),
    Foreign(("zero_to_fp32.py",), "a checkpoint of DeepSpeed", DEEPSPEED),
    Foreign(("global_step[0-9]*",), "a checkpoint of DeepSpeed", DEEPSPEED),
    Foreign(("recipe_state*",), "a checkpoint of torchtune", TORCHTUNE),
    Foreign(("hf_model_*.pt",), "a checkpoint of torchtune", TORCHTUNE),
    ADAPTER_FOLDER,
    Foreign(("adapter_*",), "a folder of adapters without their model", ADAPTERS),
    Foreign(("openvino_*.xml",), "an export to OpenVINO", EXPORTED),
    Foreign(("model.bin", "*vocabulary.*"), "an export to CTranslate2", EXPORTED),
    Foreign(("tf_model*.h5",), "a model of TensorFlow", TENSORFLOW),
    Foreign(("saved_model.pb",), "a SavedModel of TensorFlow", EXPORTED),
    Foreign(("flax_model*.msgpack",), "a model of Flax", FLAX),
    Foreign(("*.gguf",), "a folder of GGUF files", GGUF),
    Foreign(("*.onnx",), "an export to ONNX", EXPORTED),
    Foreign(("onnx/*.onnx",), "an export to ONNX", EXPORTED),
    Foreign(("*.pte",), "an export to ExecuTorch", EXPORTED),
)


def refuse_foreign(path: FilePath) -> None:
    """Refuse a source that is missing or that another program reads, with what to do first."""
    path = Path(path)
    if path.is_file():
        refuse_foreign_file(path)
    elif path.is_dir():
        refuse_foreign_folder(path)
    else:
        refuse_missing(path)


def refuse_missing(path: Path) -> None:
    # Path joins the slashes of an address.
    hub = HUB.fullmatch(re.sub(r"^(https?|hf):/+", r"\1://", str(path)))
    if hub and not Path(hub[1]).parent.exists():
        name = hub[1].rpartition("/")[2]
        raise ConversionError(
            f"{path} is no file or folder here: if it is a repository on the Hub, run "
            f"`hf download {hub[1]} --local-dir {name}`, and import {name}"
        )
    near = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = did_you_mean(path.name, near)
    if not hint and str(path) == path.name and not path.suffix:  # such as gpt2
        hint = f", or run `hf download {path} --local-dir {path}` first if it is on the Hub"
    raise ConversionError(f"{path} does not exist: give a folder with config.json, or a file{hint}")


def refuse_foreign_file(path: Path) -> None:
    if fault := fault_of_text(path):
        beside = f", or give its folder, {path.parent}" if is_readable(path.parent) else ""
        raise ConversionError(fault + beside)
    ending = ending_of(path)
    for kind in IN_FILES:
        if ending in kind.marks:
            raise kind.refusal(path)


def ending_of(path: Path) -> str:
    """Return the ending that a file should have by its first bytes, else the one that it has."""
    with path.open("rb") as file:
        head = file.read(8)
    return next(
        (end for magic, end in MAGIC.items() if head.startswith(magic)), path.suffix
    ).lower()


def refuse_foreign_folder(folder: Path) -> None:
    if is_readable(folder):
        return
    refuse_sentences(folder)
    for kind in IN_FOLDERS:
        if all(any(folder.glob(mark)) for mark in kind.marks):
            raise kind.refusal(folder)
    if (folder / "config.json").is_file():
        return
    inner = [*folder.glob("*/config.json"), *folder.glob("snapshots/*/config.json")]
    if inner:
        raise ConversionError(
            f"{folder} has no config.json, but folders in it have: give "
            f"{some(path.parent for path in inner)}"
        )
    if files := [path for mark in WEIGHTS for path in folder.glob(mark)]:
        raise ConversionError(
            f"{folder} has no config.json, which says how its weights are read: put it there, or "
            f"give the file of a plain PyTorch program, {some(files)}"
        )


def holds_library_weights(folder: Path) -> bool:
    """Return whether a folder has a configuration and weights by the names of transformers."""
    names = (folder / name for name in FILES)
    return (folder / "config.json").is_file() and any(path.is_file() for path in names)


def is_readable(folder: Path) -> bool:
    """Return whether a folder has weights and settings by the names that a format of ours reads."""
    if not (folder / "config.json").is_file():
        return (folder / "params.json").is_file()  # of Meta
    return holds_library_weights(folder)


def refuse_sentences(folder: Path) -> None:
    """Refuse a folder of sentence-transformers whose model lies in a folder of its own."""
    if (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise ConversionError(
            f"{folder} is a folder of sentence-transformers with its model in a folder of its "
            f"own: run SentenceTransformer('{folder}').save_pretrained('NEW'), and import NEW"
        )


def some(paths: Iterable[Path]) -> str:
    paths = sorted(paths)
    return " or ".join(map(str, paths[:SHOWN]))


def model_class_of(folder: Path) -> str:
    """Return the class for PyTorch that config.json names."""
    config = folder / "config.json"
    try:
        named = json_object(config).get("architectures") if config.is_file() else None
    except (OSError, ValueError):
        named = None
    first = named[0] if isinstance(named, list) and named else None
    return re.sub(r"^(TF|Flax)", "", first) if isinstance(first, str) else "AutoModel"


def is_lightning(path: FilePath) -> bool:
    """Return whether a file of torch.save has Lightning's key; nothing is unpickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("data.pkl")]
            with archive.open(names[0]) as record:
                return LIGHTNING in record.read(PICKLE_BYTES)
    except (*UNREADABLE, IndexError):
        return False


def lightning_refusal(path: FilePath, names: Iterable[str] = ()) -> ConversionError:
    """Return the refusal of a Lightning checkpoint, whose tensor names may share a prefix."""
    first = {name.partition(".")[0] for name in names}
    prefix = f"{first.pop()}." if len(first) == 1 else "model."
    return ConversionError(
        f"{path} is a checkpoint of Lightning, which holds the weights of a module in another "
        f"one: where you trust it, run torch.save({{name.removeprefix({prefix!r}): tensor for "
        f"name, tensor in torch.load('{path}', weights_only=False)['state_dict'].items()}}, "
        "'inner.pt'), and import inner.pt"
    )
