"""The filter of system calls says the same on both architectures, whatever machine this is."""

import errno
import importlib
import os
import re
import struct
import sys
from pathlib import Path

import pytest

from hf_tformer.checking.behind_walls import LAUNCHER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are walls on Linux alone")

HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
KILLED, REFUSED, DONE, ALLOWED = "killed", errno.EPERM, 0, "allowed"


@pytest.fixture
def walls_filter(monkeypatch):
    """As walls.py imports it: by itself, not as a part of the package."""
    monkeypatch.syspath_prepend(str(LAUNCHER.parent))
    yield importlib.import_module("walls_filter")
    for name in ("walls_filter", "walls_kernel"):
        sys.modules.pop(name)


def answer(program, architecture, number, *arguments):
    """What the kernel would do: a machine with one register."""
    numbers = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, architecture, 0, *numbers)
    instructions, at, register = list(struct.iter_unpack("HBBI", program)), 0, 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            register &= value
        elif code == 0x06:
            kind = value & 0xFFFF0000
            return {0x80000000: KILLED, 0x7FFF0000: ALLOWED}.get(kind, value & 0xFFFF)
        else:
            holds = register == value if code == 0x15 else register >= value
            at += if_true if holds else if_false


@pytest.fixture(params=HEADERS)
def machine(request, walls_filter, monkeypatch):
    """(the column of the table, what the filter answers to a call)"""
    monkeypatch.setattr(walls_filter.platform, "machine", lambda: request.param)
    architecture, _, column = walls_filter.ARCHITECTURES[request.param]
    program = walls_filter.build()
    return request.param, column, lambda *call: answer(program, architecture, *call)


def test_the_tables_are_answered_as_they_say(machine, walls_filter):
    _, column, ask = machine
    for table, wanted in ((walls_filter.REFUSED, REFUSED), (walls_filter.IGNORED, DONE)):
        for name, numbers in table.items():
            if numbers[column] is not None:
                assert (name, ask(numbers[column])) == (name, wanted)
    assert {ask(number) for number in range(470, 600)} == {errno.ENOSYS}


def test_what_depends_on_an_argument(machine, walls_filter):
    _, column, ask = machine
    thread, process, space = 0x3D0F00, 17, 0x10000000
    assert ask(walls_filter.CLONE[column], thread) == ALLOWED
    assert ask(walls_filter.CLONE[column], process) == REFUSED
    assert ask(walls_filter.CLONE[column], process | space) == REFUSED
    assert ask(walls_filter.CLONE3[column]) == errno.ENOSYS
    for call in (walls_filter.KILL[column], walls_filter.TGKILL[column]):
        assert ask(call, os.getpid(), 6) == ALLOWED
        assert {ask(call, other, 6) for other in (0, 1, os.getppid(), 2**64 - 1)} == {REFUSED}
    private, shared, shared_file = 0x22, 0x21, 0x01
    flags = {kind: ask(walls_filter.MMAP[column], 0, 1, 3, kind) for kind in (private, shared_file)}
    assert set(flags.values()) == {ALLOWED}
    assert {ask(walls_filter.MMAP[column], 0, 1, 3, kind) for kind in (shared, 0x23)} == {REFUSED}
    assert ask(walls_filter.PRLIMIT[column], 0) == ALLOWED
    assert ask(walls_filter.PRLIMIT[column], os.getppid()) == REFUSED
    assert ask(walls_filter.UTIMENSAT[column], 3, 0) == ALLOWED
    assert ask(walls_filter.UTIMENSAT[column], 3, 0x7F00_1234_5678) == REFUSED


def test_other_ways_into_the_kernel_are_closed(walls_filter, monkeypatch):
    monkeypatch.setattr(walls_filter.platform, "machine", lambda: "x86_64")
    program, x86_64, i386 = walls_filter.build(), 0xC000003E, 0x40000003
    assert answer(program, i386, 1) == KILLED
    assert answer(program, x86_64, 0x40000000 | 41) == errno.ENOSYS
    assert answer(program, x86_64, 0) == ALLOWED


def test_an_architecture_without_a_table_has_no_filter(walls_filter, monkeypatch):
    monkeypatch.setattr(walls_filter.platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no table of system calls for riscv64"):
        walls_filter.build()


def test_the_numbers_are_those_of_the_kernel(machine, walls_filter):
    name, column, _ = machine
    header = Path(HEADERS[name])
    if not header.exists():
        pytest.skip(f"there is no {header}")
    pattern = r"#define __NR(?:3264)?_(\w+)\s+(\d+)$"
    known = {k: int(n) for k, n in re.findall(pattern, header.read_text(), re.MULTILINE)}
    calls = {**walls_filter.REFUSED, **walls_filter.IGNORED}
    for call in ("CLONE", "CLONE3", "KILL", "TGKILL", "MMAP", "UTIMENSAT"):
        calls[call.lower()] = getattr(walls_filter, call)
    calls["prlimit64"] = walls_filter.PRLIMIT
    wrong = [c for c, n in calls.items() if c in known and n[column] != known[c]]
    missing = [c for c, n in calls.items() if c not in known and n[column] not in (None, *NEW)]
    assert (wrong, missing) == ([], [])


NEW = (452, 463, 466, 467, 469)  # newer than some headers
