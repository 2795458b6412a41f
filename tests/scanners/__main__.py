"""`make scanners`: ask every scanner about every form of the corpus, and keep what they say.

    make scanners RULES=semgrep-rules     # writes the tables, in a quarter of an hour
    PYTHONPATH=tests python -m scanners   # prints them

RULES is a checkout of https://github.com/semgrep/semgrep-rules, which no package index has. Without
it Semgrep is left out, and so is a scanner that cannot be installed. No code of a form is run.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.paths import ROOT

from .forms import honest_forms, hostile_forms, write_forms
from .page import PAGES, tables, write
from .tools import SCANNERS, installed, levels_by_folder, version_of_rules


def main():
    parser = argparse.ArgumentParser(prog="make scanners", description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    parser.add_argument("--semgrep-rules", type=Path, help="checkout of Semgrep's public rules")
    parser.add_argument(
        "--environments",
        type=Path,
        default=ROOT / ".venv-scanners",
        help="folder with one environment for each scanner, which are made where they are missing",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        # As the tools print it: a folder of temporary files may be a link.
        place = Path(place).resolve()
        hostile, honest = write_forms(place, {"hostile": hostile_forms(), "honest": honest_forms()})
        results, versions = ask_all(place / "forms", options)
    for language, page in PAGES.items():
        text = tables(language, hostile, honest, results, versions)
        if options.write:
            write(page, text)
        elif language == "en":
            print(text)


def ask_all(forms, options):
    results, versions = {}, {}
    for scanner in SCANNERS:
        if scanner.name == "Semgrep" and not options.semgrep_rules:
            print("Semgrep is left out: name its rules by --semgrep-rules", file=sys.stderr)
            continue
        try:
            programs, version = installed(scanner, options.environments)
        except subprocess.CalledProcessError as error:
            print(f"{scanner.name} is left out, not installed: {error}", file=sys.stderr)
            continue
        start = time.monotonic()
        levels = levels_by_folder(scanner, programs, forms, options.semgrep_rules)
        print(f"{scanner.name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
        if sound := levels.pop("sound"):
            raise SystemExit(f"{scanner.name} reports the model without any form: {sound}")
        results[scanner], versions[scanner.name] = levels, version
        if scanner.name == "Semgrep":
            versions["semgrep-rules"] = version_of_rules(options.semgrep_rules)
    return results, versions


if __name__ == "__main__":
    sys.exit(main())
