"""A program that tries to climb the walls, against what the test put there; see test_walls.py.

Each attempt is a function of `target`, the names and numbers of the test's own files, listeners and
processes. It raises an error where it is stopped. `STOPPED_BY` has the walls that each stop it
alone.
"""

# ruff: noqa: PTH101, PTH104, PTH108, PTH116, PTH123, PTH208 (the calls themselves are tried)

import ctypes
import json
import mmap
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
SYSTEM_CALLS = {
    "x86_64": {"bpf": 321, "keyctl": 250, "perf": 298, "userfaultfd": 323, "vm_readv": 310},
    "aarch64": {"bpf": 280, "keyctl": 219, "perf": 241, "userfaultfd": 282, "vm_readv": 270},
}
ATTEMPTS, STOPPED_BY = {}, {}
# What only root can do, or what many a machine refuses without any walls.
MAY_BE_REFUSED = set()


def attempt(*walls, common=True):
    def add(function):
        name = function.__name__.replace("_", " ")
        ATTEMPTS[name], STOPPED_BY[name] = function, walls
        if not common:
            MAY_BE_REFUSED.add(name)
        return function

    return add


def checked(result):
    """What a function of the C library returned, or the OSError that it means."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def system_call(number, *arguments):
    if isinstance(number, str):
        number = SYSTEM_CALLS[os.uname().machine][number]
    numbers = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *numbers, *[ctypes.c_long(0)] * 5))


# ---- files outside


@attempt("files")
def read_a_file(target):
    Path(target["secret"]).read_text()


@attempt("files")
def read_a_file_by_the_c_library(target):
    checked(libc.open(target["secret"].encode(), os.O_RDONLY))


@attempt("files")
def read_a_file_through_a_folder_opened_as_a_path(target):
    root = os.open("/", os.O_PATH)
    os.open(target["secret"].lstrip("/"), os.O_RDONLY, dir_fd=root)


@attempt("files")
def read_a_file_through_a_symbolic_link(target):
    Path("link").unlink(missing_ok=True)
    Path("link").symlink_to(target["secret"])
    Path("link").read_text()


@attempt("files")
def read_a_file_through_a_hard_link(target):
    Path("hard").unlink(missing_ok=True)
    Path("hard").hardlink_to(target["secret"])
    Path("hard").read_text()


@attempt("files")
def read_a_file_through_the_root_of_a_process(target):
    Path("/proc/self/root" + target["secret"]).read_text()


@attempt("files")
def read_a_file_through_the_folder_of_a_process(target):
    up = "/".join([".."] * 20)
    Path(f"/proc/self/cwd/{up}{target['secret']}").read_text()


@attempt("files")
def map_a_file(target):
    with open(target["secret"], "rb") as file:
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


@attempt("files", common=False)
def read_the_environment_of_the_caller(target):
    Path(f"/proc/{target['caller']}/environ").read_bytes()


@attempt("files", common=False)
def read_the_files_of_the_caller(target):
    os.listdir(f"/proc/{target['caller']}/fd")


@attempt("files")
def read_who_uses_this_machine(target):
    Path("/etc/passwd").read_text()


@attempt("files")
def list_a_folder(target):
    os.listdir(target["outside"])


@attempt("files")
def list_all_processes(target):
    os.listdir("/proc")


@attempt("files")
def write_a_new_file(target):
    Path(target["outside"], "new").touch()


@attempt("files", "namespaces")
def read_shared_memory(target):
    Path("/dev/shm", target["name"]).read_text()


@attempt("files")
def add_to_a_file(target):
    with open(target["marker"], "a") as file:
        file.write("touched")


@attempt("files", "system calls")
def truncate_a_file(target):
    os.truncate(target["marker"], 0)


@attempt("files")
def rename_a_file(target):
    os.rename(target["marker"], target["marker"] + ".old")
    os.rename(target["marker"] + ".old", target["marker"])


@attempt("files")
def remove_a_file(target):
    os.unlink(Path(target["outside"], "removable"))


@attempt("files")
def make_a_folder(target):
    Path(target["outside"], "folder").mkdir()


@attempt("files")
def move_a_file_out(target):
    Path("mine").touch()
    os.rename("mine", Path(target["outside"], "moved"))


@attempt("files")
def link_a_file_out(target):
    Path("linked").touch()
    os.link("linked", Path(target["outside"], "linked"))


@attempt("files")
def write_through_a_symbolic_link(target):
    Path("to").unlink(missing_ok=True)
    Path("to").symlink_to(Path(target["outside"], "through"))
    Path("to").write_text("touched")


@attempt("files")
def change_the_folder_that_is_read(target):
    with open(Path(target["readable"], "config.json"), "a") as file:
        file.write(" ")


@attempt("files")
def add_code_to_the_folder_that_is_read(target):
    Path(target["readable"], "more.py").touch()


@attempt("files", "system calls")
def run_a_program_on_a_file(target):
    subprocess.run(["cat", target["secret"]], check=True, capture_output=True)


@attempt("system calls")
def change_a_mode(target):
    os.chmod(target["marker"], 0o777)
    if os.stat(target["marker"]).st_mode & 0o777 != 0o777:
        raise PermissionError("it was answered as if done")


@attempt("system calls")
def change_a_time(target):
    os.utime(target["marker"], (1, 1))


@attempt("system calls")
def change_an_owner(target):
    os.chown(target["marker"], os.getuid(), os.getgid())


@attempt("system calls")
def watch_a_folder(target):
    watcher = checked(libc.inotify_init1(0))
    checked(libc.inotify_add_watch(watcher, target["outside"].encode(), 0xFFF))


# ---- the network, and other processes' sockets


def connect(family, kind, address):
    with socket.socket(family, kind) as connection:
        connection.settimeout(5)
        connection.connect(address)
        if kind == socket.SOCK_DGRAM:
            connection.send(b"touched")


@attempt("files", "system calls", "namespaces")
def connect_by_tcp(target):
    connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", target["tcp"]))


@attempt("system calls", "namespaces")
def send_by_udp(target):
    connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", target["udp"]))


@attempt("files", "system calls", "namespaces", common=False)
def connect_by_tcp_6(target):
    connect(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", target["tcp"]))


@attempt("files", "system calls", "namespaces")
def ask_by_http(target):
    urllib.request.urlopen(f"http://127.0.0.1:{target['tcp']}/", timeout=5).read()


@attempt("system calls")
def connect_to_a_unix_socket(target):
    connect(socket.AF_UNIX, socket.SOCK_STREAM, target["unix"])


@attempt("files", "system calls", "namespaces")
def connect_to_an_abstract_socket(target):
    connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + target["abstract"])


@attempt("system calls", common=False)
def open_a_socket_to_the_kernel(target):
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).bind((0, 0))


@attempt("system calls", "privileges", common=False)
def open_a_raw_socket(target):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attempt("files", "system calls")
def offer_a_service(target):
    socket.socket().bind(("127.0.0.1", 0))


# ---- other processes


@attempt("system calls")
def fork(target):
    leave_child(os.fork())


@attempt("system calls")
def fork_twice(target):
    if not (child := os.fork()):
        os.setsid()
        os.fork()
        os._exit(0)
    leave_child(child)


@attempt("system calls")
def fork_by_the_c_library(target):
    child = checked(libc.fork())
    leave_child(child)


def leave_child(child):
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


@attempt("system calls")
def start_a_worker(target):
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
    worker.start()
    worker.join()


@attempt("files", "system calls")
def start_a_shell(target):
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "true"], {}), 0)


@attempt("files", "system calls")
def start_a_program_that_it_wrote(target):
    Path("own").write_text("#!/bin/sh\n")
    os.chmod("own", 0o700)
    os.waitpid(os.posix_spawn("./own", ["own"], {}), 0)


@attempt("files", "system calls", "namespaces")
def see_the_caller(target):
    os.kill(target["caller"], 0)


@attempt("files", "system calls", "namespaces")
def signal_the_caller(target):
    os.kill(target["caller"], signal.SIGUSR1)


@attempt("files", "system calls", "namespaces")
def signal_the_group_of_the_caller(target):
    os.killpg(target["group"], 0)


@attempt("files", "system calls", "namespaces", common=False)
def read_the_memory_of_the_caller(target):
    place = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(place), 8)
    theirs = (ctypes.c_void_p * 2)(target["address"], 8)
    system_call("vm_readv", target["caller"], vector, 1, theirs, 1, 0)


@attempt("system calls", "namespaces")
def change_the_limits_of_the_caller(target):
    resource.prlimit(target["caller"], resource.RLIMIT_NOFILE)


@attempt("namespaces", common=False)
def change_the_priority_of_the_caller(target):
    os.setpriority(os.PRIO_PROCESS, target["caller"], os.getpriority(os.PRIO_PROCESS, 0))


@attempt("files", "system calls", "namespaces", common=False)
def trace_the_caller(target):
    seize = 0x4206  # unlike attaching, this does not stop it
    checked(libc.ptrace(ctypes.c_long(seize), ctypes.c_long(target["caller"]), None, None))


@attempt("system calls", common=False)
def open_a_process(target):
    os.pidfd_open(os.getpid())


# ---- rights, limits and the rest of the kernel


@attempt("system calls", common=False)
def make_a_namespace(target):
    number = 56 if os.uname().machine == "x86_64" else 220
    leave_child(system_call(number, 0x10000000 | signal.SIGCHLD, None))


@attempt("system calls", common=False)
def enter_a_namespace(target):
    checked(libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0))


@attempt("system calls", "privileges", common=False)
def change_the_root(target):
    checked(libc.chroot(b"/"))


@attempt("system calls", "privileges", common=False)
def mount_a_file_system(target):
    checked(libc.mount(b"none", target["work"].encode(), b"tmpfs", ctypes.c_long(0), None))
    checked(libc.umount2(target["work"].encode(), 2))


@attempt("system calls", common=False)
def use_rings(target):
    system_call(425, 1, ctypes.create_string_buffer(120))


@attempt("system calls", common=False)
def load_a_filter_into_the_kernel(target):
    attributes = ctypes.create_string_buffer(b"\1\0\0\0\4\0\0\0\4\0\0\0\1\0\0\0", 64)
    os.close(system_call("bpf", 0, attributes, 64))


@attempt("system calls", common=False)
def use_the_keys_of_the_session(target):
    system_call("keyctl", 0, -3, 1)


@attempt("system calls", common=False)
def catch_page_faults(target):
    os.close(system_call("userfaultfd", 1))


@attempt()
def raise_a_limit(target):
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard + 1, hard + 1) if hard > 0 else (hard, hard))


@attempt("limits")
def take_much_memory(target):
    mmap.mmap(-1, target["memory"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@attempt("system calls")
def take_memory_that_counts_as_a_stack(target):
    libc.mmap.restype = ctypes.c_void_p
    room = libc.mmap(None, ctypes.c_long(1 << 20), 3, 0x122, -1, ctypes.c_long(0))
    if room == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "no memory")


@attempt("system calls")
def make_a_mapping_larger(target):
    with mmap.mmap(-1, 1 << 12, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        room.resize(1 << 13)


@attempt("limits")
def allow_itself_a_large_stack(target):
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 30, resource.RLIM_INFINITY))


@attempt("system calls")
def share_much_memory(target):
    mmap.mmap(-1, 1 << 20)


@attempt("system calls")
def hide_memory_in_a_file(target):
    os.close(os.memfd_create("hidden"))


@attempt("system calls", common=False)
def share_memory_by_number(target):
    number = checked(libc.shmget(0, ctypes.c_long(4096), 0o1600))
    checked(libc.shmctl(number, 0, None))


@attempt("limits")
def write_a_huge_file(target):
    with open("huge", "wb") as file:
        os.truncate(file.fileno(), target["disk"] + 1)
    os.unlink("huge")


def main(say, target_file):
    target = json.loads(Path(target_file).read_text())
    for name, function in ATTEMPTS.items():
        try:
            function(target)
            say([name, "done"])
        except (OSError, MemoryError, ValueError) as error:
            say([name, f"{type(error).__name__}: {error}"])
        except BaseException as error:
            say([name, f"ERROR {type(error).__name__}: {error}"])
