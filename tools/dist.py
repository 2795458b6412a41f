"""Build the sdist and the wheel of the last commit: `make dist`.

    python tools/dist.py [FOLDER]       write both into FOLDER (default: dist)

The same commit gives the same bytes, at any time and in any folder, with the same Python and
setuptools. The wheel is built from the sdist, so that the sdist is known to hold what it needs.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BACKEND = "import sys, setuptools.build_meta as it; getattr(it, sys.argv[1])(sys.argv[2])"


def main() -> None:
    output = Path(*sys.argv[1:] or ["dist"]).resolve()
    output.mkdir(parents=True, exist_ok=True)
    for earlier in [*output.glob("hf_tformer-*.whl"), *output.glob("hf_tformer-*.tar.gz")]:
        earlier.unlink()
    os.umask(0o022)  # decides the modes of files, which both archives store
    time = os.environ["SOURCE_DATE_EPOCH"] = git("log", "-1", "--format=%ct").decode().strip()
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "source")
        archive = Path(place, "source.tar")
        archive.write_bytes(git("-c", "tar.umask=0022", "archive", "HEAD"))
        shutil.unpack_archive(archive, source)
        run_backend("build_sdist", source, output)
        (sdist,) = output.glob("hf_tformer-*.tar.gz")
        unify_sdist(sdist, int(time))
        shutil.unpack_archive(sdist, place)
        run_backend("build_wheel", Path(place, sdist.name.removesuffix(".tar.gz")), output)
    for built in sorted(output.glob("hf_tformer-*")):
        print(f"{built.stat().st_size:>9,} bytes  {built.name}")


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def run_backend(function: str, source: Path, output: Path) -> None:
    """Call a function of setuptools' build backend; show what it prints only if it fails."""
    words = [sys.executable, "-c", BACKEND, function, str(output)]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def unify_sdist(sdist: Path, time: int) -> None:
    """Write an sdist anew with one time, one owner and one order instead of this machine's."""
    rewritten = sdist.with_suffix(".new")
    with (
        tarfile.open(sdist) as before,
        rewritten.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for entry in sorted(before.getmembers(), key=lambda entry: entry.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = time, 0, 0, "", ""
            entry.mode, entry.pax_headers = 0o644 if entry.isfile() else 0o755, {}
            after.addfile(entry, before.extractfile(entry) if entry.isfile() else None)
    rewritten.replace(sdist)


if __name__ == "__main__":
    main()
