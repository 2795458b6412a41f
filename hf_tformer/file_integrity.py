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
        raise ValueError(f"{path} is not valid JSON ({error}): fetch it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object: fetch it again")
    return content


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
        return (
            f"{path} is truncated or no file of torch.save since 1.6: fetch it again, or save it "
            "again as safetensors where you trust it"
        )


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
