"""Machines on which walls are missing: a launcher that stands in for walls.py there."""

from hf_tformer.checking import behind_walls

LAUNCHER = """
import runpy, sys
sys.path.insert(0, {folder!r})
{change}
runpy.run_path({launcher!r}, run_name="__main__")
"""
NO_NAMESPACES = """
import walls_kernel
def refuse(*_):
    return dict.fromkeys(("users", *walls_kernel.NAMESPACES), "Operation not permitted")
walls_kernel.leave_namespaces = refuse
"""
NO_FILTER = """
import walls_filter
def refuse():
    raise OSError(38, "no table of system calls for riscv64")
walls_filter.refuse_calls = refuse
"""
LANDLOCK = "import walls_kernel\nwalls_kernel.landlock_version = lambda: {}\n"
# machine → what the launcher finds there, and words of the sentence that says so
MACHINES = {
    "macOS": ("sys.platform = 'darwin'", "there are none on darwin"),
    "Windows": ("sys.platform = 'win32'", "there are none on win32"),
    "a kernel without Landlock": (LANDLOCK.format(0), "files (the kernel has no Landlock)"),
    "an old Landlock": (LANDLOCK.format(2), "files (Landlock 2 does not keep files from"),
    "a container": (NO_NAMESPACES, "namespaces (none of users (Operation not permitted)"),
    "another processor": (NO_FILTER, "system calls (no table of system calls for riscv64)"),
}


def move_to(machine, monkeypatch, folder):
    """Let this process believe that it runs on such a machine; return what it must be told."""
    change, words = MACHINES[machine]
    use_launcher(change, monkeypatch, folder)
    return words


def use_launcher(change, monkeypatch, folder):
    launcher = behind_walls.LAUNCHER
    text = LAUNCHER.format(folder=str(launcher.parent), launcher=str(launcher), change=change)
    (folder / "launcher.py").write_text(text)
    monkeypatch.setattr(behind_walls, "LAUNCHER", folder / "launcher.py")
