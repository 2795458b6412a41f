"""Find damage in a file without running any code that is in it.

torch.save writes a checksum of each record, which torch.load does not compare. A safetensors file
has no checksums: a changed value goes unnoticed unless it is NaN or infinite.
"""

import json
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

HEAD_BYTES = 512  # by which text is told from weights
POINTER = b"version https://git-lfs.github.com/spec/"
ZIPPED, PICKLED = b"PK", b"\x80\x02"  # the first bytes of files of torch.save, since 1.6 and before
JSON_BYTES = 64 * 2**20  # forty times the index of the largest public model
# What zipfile raises for an archive that it cannot read.
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,  # a record that claims to be encrypted; NotImplementedError is one, too
    EOFError,
    ValueError,
    OverflowError,
)


def json_object(path: str | Path) -> dict:
    """Return the object in a JSON file; a ValueError says in one sentence why there is none."""
    path = Path(path)
    if (size := path.stat().st_size) > JSON_BYTES:
        raise ValueError(f"{path} has {size} bytes, too many to describe a model: fetch it again")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deep to be read: fetch it again") from error
    except ValueError as error:
        fault = fault_of_page(path) or f"{path} is not valid JSON ({error}): correct it there"
        raise ValueError(fault) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object: write one, in braces")
    return content


def fault_of_page(path: str | Path) -> str | None:
    """Return that a file is a git-lfs pointer or an HTML page, which came instead of its content.

    Both are what a download leaves behind that went half right.
    """
    with Path(path).open("rb") as file:
        head = file.read(HEAD_BYTES).lstrip().lower()
    if head.startswith(POINTER):
        return f"{path} is a git-lfs pointer, not the file itself: run `git lfs pull` in its folder"
    if head.startswith((b"<!doctype html", b"<html")):
        return (
            f"{path} is an HTML page, not the file itself: download it with `hf download`, or from "
            "an address with /resolve/ instead of /blob/"
        )
    return None


def fault_of_text(path: str | Path) -> str | None:
    """Return that a file which should hold weights is text, such as a git-lfs pointer."""
    if fault := fault_of_page(path):
        return fault
    with Path(path).open("rb") as file:
        head = file.read(HEAD_BYTES)
    if len(head) < len(POINTER) or not is_text(head):
        return None
    return f"{path} is a text file, which holds no weights: give the file that holds them"


def is_text(head: bytes) -> bool:
    """Return whether the beginning of a file is text in UTF-8, whose last character may be cut."""
    text = head.decode("utf-8", errors="replace")[:-1]
    return all(character.isprintable() or character.isspace() for character in text) and (
        "\N{REPLACEMENT CHARACTER}" not in text
    )


def fault_of_dtype(config: dict) -> str | None:
    """Return why a dtype in config.json is none of torch, which transformers does not check."""
    import torch

    names = {name: config[name] for name in ("dtype", "torch_dtype") if config.get(name)}
    for name, value in names.items():
        dtype = getattr(torch, str(value).removeprefix("torch."), None)
        if value != "auto" and not isinstance(dtype, torch.dtype):
            return f"{name} is {value!r} in config.json: write a type of torch, such as float32"
    return None


def fault_of_pickle(path: str | Path) -> str | None:
    """Return why a file of torch.save is damaged, in one sentence; None if every record is whole.

    This reads the whole file, at about 3 GB a second.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return fault_of_records(path, archive)
    except UNREADABLE:
        if fault := fault_of_text(path):
            return fault
        with Path(path).open("rb") as file:
            head = file.read(2)
        if PICKLED.startswith(head) and len(head) == 2:
            return (
                f"{path} is a file of torch.save before 1.6: load it where you trust it, and save "
                "it again as safetensors"
            )
        if ZIPPED.startswith(head):  # a file of one byte or none as well
            return f"{path} is truncated: fetch it again"
        return f"{path} is no file of torch.save: give the file that holds the weights"


def fault_of_records(path: str | Path, archive: zipfile.ZipFile) -> str | None:
    records = archive.infolist()
    for record in records:
        if record.compress_type != zipfile.ZIP_STORED:
            return (
                f"{path} holds {record.filename} compressed, which torch would read as it is: "
                "save it again with torch.save"
            )
    name, times = Counter(record.filename for record in records).most_common(1)[0]
    if times > 1:
        return f"{path} holds {name} {times} times: save it again with torch.save"
    if not any(record.CRC for record in records):
        return None  # torch.serialization.set_crc32_options(False) omits them
    if damaged := archive.testzip():
        return f"{path} is damaged, {damaged} is not what was saved: fetch it again"
    return None


def not_a_number(tensor: "torch.Tensor") -> str | None:
    """Return "NaN" or "infinity" if a floating-point tensor holds one; this takes no memory."""
    if not tensor.is_floating_point() or not tensor.numel():
        return None
    if tensor.element_size() < 2:  # torch has no minimum of float8
        tensor = tensor.float()
    low, high = tensor.aminmax()
    if low.isfinite() and high.isfinite():
        return None
    return "NaN" if low.isnan() else "infinity"
