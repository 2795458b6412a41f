"""Restrict this process by what Linux offers without root: namespaces, Landlock, limits and fewer
capabilities. walls.py raises them in order.

Every function raises OSError if the kernel refuses.
"""

import ctypes
import errno
import os
import resource
import signal
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)

# linux/prctl.h
SET_PDEATHSIG, CAPBSET_DROP, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 1, 24, 36, 38
NEW_USER = 0x10000000
NAMESPACES = {
    "processes": 0x20000000,
    "network": 0x40000000,
    "message queues": 0x08000000,
    "host name": 0x04000000,
    "mounts": 0x00020000,
}
SHARED_MEMORY = "/dev/shm"
STACK = 1 << 23  # bytes of the first thread's; the kernel counts it apart from other memory
PRIVATE_MOUNTS = 1 << 14 | 1 << 18  # here and everywhere below
NO_DEVICES = 0b1110  # no programs, no rights of other users
CAPABILITIES_VERSION = 0x20080522

# linux/landlock.h; the calls have the same numbers on every architecture.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
NEVER = EXECUTE | MAKE_CHAR | MAKE_SOCK | MAKE_BLOCK | IOCTL_DEV
OF_FILES = WRITE_FILE | READ_FILE | TRUNCATE
TCP = 0b11  # bind, connect
SCOPES = 0b11  # abstract unix sockets, signals


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library; raise OSError if it returns -1."""
    function = getattr(libc, name)
    numbers = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = function(*numbers, *[ctypes.c_long(0)] * (5 - len(numbers)))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def die_with_parent() -> None:
    call("prctl", SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    call("prctl", SET_CHILD_SUBREAPER, 1)


def leave_namespaces(work: str | None = None, disk: int = 0) -> dict[str, str]:
    """Enter new namespaces; return those that the kernel refused, and why.

    The one of processes begins with the next fork. Without the one of users, an ordinary user gets
    none of the others. A folder `work` becomes one in memory that holds no more than `disk` bytes,
    whatever becomes of the names of its files.
    """
    user, group, refused = os.getuid(), os.getgid(), {}
    try:
        call("unshare", NEW_USER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        refused["users"] = error.strerror or str(error)
    for name, flag in NAMESPACES.items():
        try:
            call("unshare", flag)
            if name == "mounts":
                own_memory(SHARED_MEMORY, "size=16m,nr_inodes=1k")
                if work is not None:
                    own_memory(work, f"size={disk},nr_inodes=10k,mode=700")
        except OSError as error:
            refused[name] = error.strerror or str(error)
    return refused


def own_memory(path: str, limits: str) -> None:
    """Mount an empty folder in memory; `multiprocessing` has its locks in one, as files."""
    call("mount", None, b"/", None, PRIVATE_MOUNTS, None)
    call("mount", b"walls", path.encode(), b"tmpfs", NO_DEVICES, limits.encode())


def gain_no_privileges() -> None:
    """Give up gaining privileges by executing files, which the other walls require."""
    call("prctl", SET_NO_NEW_PRIVS, 1)


def drop_privileges() -> None:
    for capability in range(64):
        try:
            call("prctl", CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # the kernel knows no more
                break
            if error.errno != errno.EPERM:  # an ordinary user without a namespace has none
                raise
    header = ctypes.create_string_buffer(struct.pack("Ii", CAPABILITIES_VERSION, 0))
    call("capset", header, ctypes.create_string_buffer(24))


def limit(memory: int, disk: int, own_users: bool) -> None:
    """Limit the resources of each process.

    `memory` counts what a process may write to, not files that it maps to read: torch reserves far
    more addresses than it uses. Shared memory and further stacks are refused by walls_filter.py.
    """
    limits = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_FSIZE: disk,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 1024,
        resource.RLIMIT_MEMLOCK: 1 << 26,
        resource.RLIMIT_STACK: STACK,
    }
    if own_users:  # otherwise it counts all processes of the user
        limits[resource.RLIMIT_NPROC] = 4096
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def landlock_version() -> int:
    """Return the version of Landlock, or 0 if there is none."""
    return max(libc.syscall(CREATE_RULESET, None, ctypes.c_long(0), ctypes.c_long(1)), 0)


def close_files(readable: Iterable[str], writable: Iterable[str], own_namespaces: bool) -> str:
    """Restrict this thread, and all that it starts, to these files and folders.

    Return what this kernel cannot close yet, and no namespace closes either.
    """
    version = landlock_version()
    if not version:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock")
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    scopes = SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", every, TCP if version >= 4 else 0, scopes)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = call("syscall", CREATE_RULESET, ctypes.create_string_buffer(attributes), size, 0)
    for paths, rights in ((readable, READ_FILE | READ_DIR), (writable, every & ~NEVER)):
        for path in paths:
            allow_beneath(rules, path, rights & every)
    call("syscall", RESTRICT_SELF, rules, 0)
    os.close(rules)
    if version < 3:
        return f"Landlock {version} does not keep files from being emptied"
    is_closed = scopes or own_namespaces
    return "" if is_closed else f"Landlock {version} closes neither signals nor abstract sockets"


def allow_beneath(rules: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # there is nothing to allow
    try:
        if not Path(path).is_dir():
            rights &= OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, opened))
        call("syscall", ADD_RULE, rules, PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)
