"""The forms of the corpus, each written as a model folder with it.

A form is code that is put in front of a sound model's code, or files beside it, or both.
"""

import io
import json
import pickle
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch

from support.broken_models import FILE, edit_json, prepend, write_foreign
from support.corpus import OTHER, forms_of
from support.honest_folders import HONEST
from support.hostile_code import HOSTILE, MORE, UNREADABLE

# Danger → kinds of tests/check/hostile.toml, and groups of tests/support/hostile_code.py.
DANGERS = {
    "starts programs, loads native code": ("subprocess", "starts processes"),
    "runs text as code": ("eval", "runs text as code", "calls by attributes"),
    "reaches into the interpreter": ("insides", "hidden import"),
    "unpickles": ("pickle", "unpickles"),
    "reaches the network": ("network", "reaches the network"),
    "runs code from elsewhere": ("foreign code", "runs code from elsewhere"),
    "reads secrets": ("secrets", "reads secrets"),
    "writes or deletes files": ("file writes", "writes files"),
    "changes torch or transformers": ("tampering", "changes torch or transformers"),
    "hands a module on, out of sight": ("handed on",),
    "computes what it calls": ("not understood",),
    "several of these, invented later": ("more",),
}
HIDDEN = "is read by Python otherwise than by a person"
FILES = {"field": "a field of a JSON file has code loaded", "pickle": "a file that is a pickle"}
HONEST_CODE, HONEST_FIELDS, HONEST_PICKLES = "code", "fields of JSON files", "pickles and arrays"


class Form(NamedTuple):
    danger: str
    name: str
    code: str = ""  # goes in front of the sound model's code
    files: Mapping[str, bytes] = MappingProxyType({})  # fields are added to a JSON file


def hostile_forms():
    """Yield the hostile forms, those of one danger together."""
    code = {**HOSTILE, "more": MORE}
    code = {group: [(repr(text), text) for text in texts] for group, texts in code.items()}
    for form in forms_of("hostile"):
        code.setdefault(form["kind"], []).append((form["name"], form["code"]))
    placed = {kind for kinds in DANGERS.values() for kind in kinds}
    if missing := code.keys() - placed:
        raise ValueError(f"DANGERS has no place for {sorted(missing)}: add them to a danger")
    yield from (
        Form(danger, name, text, {"other.py": OTHER.encode()} if "other" in text else {})
        for danger, kinds in DANGERS.items()
        for kind in kinds
        for name, text in code.get(kind, ())
    )
    for name, content in UNREADABLE.items():
        yield Form(HIDDEN, name, "from .helper import x\n", {"helper.py": content})
    for form in forms_of("hostile_files"):
        yield Form(FILES[form["kind"]], form["name"], "", contents(form["files"]))


def honest_forms():
    """Yield the honest forms: the corpus's, and files as torch, numpy and pickle write them."""
    for form in forms_of("honest"):
        yield Form(HONEST_CODE, form["name"], form["code"])
    for name, files in HONEST.items():
        yield Form(HONEST_CODE, name, imports(files), {f: t.encode() for f, t in files.items()})
    for form in forms_of("honest_files"):
        yield Form(HONEST_FIELDS, form["name"], "", contents(form["files"]))
    for name, content in honest_pickles().items():
        yield Form(HONEST_PICKLES, name, "", {name: content})


def imports(files):
    """Import the files of an honest folder, so that loading it reaches them."""
    stems = [Path(name).stem for name in files if name.endswith(".py")]
    loaded = [stem for stem in stems if "generate" not in stem and "helper" not in stem]
    return "".join(f"from .{stem} import x\n" for stem in loaded)


def contents(files):
    """Return the bytes of files that are written as text in a table of the corpus."""
    plain = {name: text.encode("latin-1") for name, text in files.items() if "!" not in name}
    for name, text in files.items():
        if "!" in name:
            archive, member = name.split("!")
            plain[archive] = zipped(member, text.encode("latin-1"))
    return plain


def zipped(member, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{Path(member).parent}/version", "3\n")
    return buffer.getvalue()


def honest_pickles():
    """Return what training leaves beside a model: name of a file → its bytes."""
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    numbers = {"python": (3, (1, 2), None), "numpy": np.random.RandomState(0).get_state()}
    return {
        "pytorch_model.bin": saved(layer.state_dict()),
        "old_pytorch_model.bin": saved(layer.state_dict(), _use_new_zipfile_serialization=False),
        "optimizer.pt": saved(optimizer.state_dict()),
        "rng_state.pth": saved({**numbers, "cpu": torch.get_rng_state()}),
        "vocabulary.pkl": pickle.dumps({"<pad>": 0, "a": 1}),
        "merges.pkl": pickle.dumps(OrderedDict({("a", "b"): 0}), protocol=2),
        "table.npy": as_file(np.save, np.ones(3)),
        "tables.npz": as_file(lambda file, array: np.savez(file, a=array), np.ones(3)),
    }


def saved(value, **options):
    return as_file(lambda file, value: torch.save(value, file, **options), value)


def as_file(write, value):
    buffer = io.BytesIO()
    write(buffer, value)
    return buffer.getvalue()


def write_folder(sound, place, form):
    """Write the model with a form: the sound one, code in front of its code, files beside it."""
    folder = Path(shutil.copytree(sound, place))
    for name, content in form.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            edit_json(path, **json.loads(content))
        else:
            path.write_bytes(content)
    prepend(folder / FILE, form.code)
    return folder


def write_forms(place, parts):
    """Write all forms into folders below `forms`, and the sound model beside them.

    Return folder → form for each part.
    """
    sound = write_foreign(place / "sound")
    (place / "forms").mkdir()
    shutil.copytree(sound, place / "forms" / "sound")
    written = []
    for part, forms in parts.items():
        named = {f"{part}-{number:04}": form for number, form in enumerate(forms)}
        for name, form in named.items():
            write_folder(sound, place / "forms" / name, form)
        written.append(named)
    return written
