"""Refuse system calls to a program behind the walls (walls.py), with a seccomp filter.

It refuses calls that reach other processes, the network, devices or rarely used parts of the
kernel, and lets the others pass: Landlock decides which files may be opened (walls_kernel.py).
"""

import ctypes
import errno
import os
import platform
import struct

from walls_kernel import call

# architecture → its number in the kernel, the number after the last system call that was considered
# here, and its column in the table below
ARCHITECTURES = {"x86_64": (0xC000003E, 470, 0), "aarch64": (0xC00000B7, 470, 1)}

# name: (x86_64, aarch64); None where the architecture has no such call.
REFUSED = {
    # new programs and other processes
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # the network, and sockets of every other kind
    "socket": (41, 198),
    # namespaces and mounts
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # files, where Landlock does not look
    "truncate": (76, 45),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    # memory that the limit of the process does not count
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mremap": (25, 216),  # makes a stack larger than its limit; allocators do without
    # parts of the kernel that no model needs
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
}
# Answered as if done: honest code meets them in shutil.copy, where a refusal would stop it, and no
# file of the caller's changes its mode.
IGNORED = {"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)}
CLONE, CLONE3 = (56, 220), (435, 435)
KILL, TGKILL, PRLIMIT, MMAP = (62, 129), (234, 131), (302, 261), (9, 222)
UTIMENSAT = (280, 88)
CLONE_THREAD = 0x10000
SHARED_AND_ANONYMOUS = 0x21
GROWS_DOWN = 0x100  # counts as a stack, and not as memory

# Instructions of the filter (linux/bpf_common.h, linux/seccomp.h).
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
SET_SECCOMP, FILTER_MODE = 22, 2


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def build() -> bytes:
    """Return the filter for this process and its architecture."""
    name = platform.machine()
    if name not in ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"no table of system calls for {name}")
    architecture, beyond, column = ARCHITECTURES[name]
    refuse = instruction(RETURN, ERRNO | errno.EPERM)
    program = [
        instruction(LOAD, ARCHITECTURE),
        instruction(EQUAL, architecture, 1, 0),
        instruction(RETURN, KILL_PROCESS),
        instruction(LOAD, NUMBER),
        # Newer calls, and those of the x32 interface, whose numbers are high.
        instruction(AT_LEAST, beyond, 0, 1),
        instruction(RETURN, ERRNO | errno.ENOSYS),
        # glibc then asks for a thread by clone, whose flags can be seen here.
        instruction(EQUAL, CLONE3[column], 0, 1),
        instruction(RETURN, ERRNO | errno.ENOSYS),
    ]
    for table, answer in ((REFUSED, refuse), (IGNORED, instruction(RETURN, ERRNO))):
        numbers = (numbers[column] for numbers in table.values())
        for number in (number for number in numbers if number is not None):
            program += [instruction(EQUAL, number, 0, 1), answer]

    def depends(call: tuple[int, int], position: int, mask: int, wanted: int, equal: bool) -> None:
        """Refuse a call unless an argument, under a mask, equals a value (or does not)."""
        program.extend(
            [
                instruction(EQUAL, call[column], 0, 5),
                instruction(LOAD, ARGUMENTS + 8 * position),
                instruction(AND, mask),
                instruction(EQUAL, wanted, *((1, 0) if equal else (0, 1))),
                refuse,
                instruction(LOAD, NUMBER),
            ]
        )

    depends(CLONE, 0, CLONE_THREAD, CLONE_THREAD, True)
    depends(KILL, 0, 0xFFFFFFFF, os.getpid(), True)
    depends(TGKILL, 0, 0xFFFFFFFF, os.getpid(), True)
    depends(PRLIMIT, 0, 0xFFFFFFFF, 0, True)
    depends(UTIMENSAT, 1, 0xFFFFFFFF, 0, True)  # of a file that is open, not of a path
    depends(MMAP, 3, SHARED_AND_ANONYMOUS, SHARED_AND_ANONYMOUS, False)
    depends(MMAP, 3, GROWS_DOWN, GROWS_DOWN, False)
    return b"".join([*program, instruction(RETURN, ALLOW)])


def refuse_calls() -> str:
    """Raise the wall for this thread and all that it starts."""
    code = build()
    block = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(block))
    call("prctl", SET_SECCOMP, FILTER_MODE, ctypes.create_string_buffer(program, len(program)))
    return ""
