"""Run transformers' linter for model code on hf_tformer/model, less the rules in mlinter.toml.

This is not the `mlinter` command, for two reasons. A rules file of its own kind must restate every
rule of the installed version, so each release would break it. And its rules choose files by name:
the command passes over attention.py, layers.py and the other siblings, where `forward` lives too.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import mlinter

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "hf_tformer" / "model"


def enabled_rules(rules_file: Path) -> set[str]:
    """Return the rules of the linter without those that the file disables for a reason."""
    disabled = tomllib.loads(rules_file.read_text(encoding="utf-8"))["disabled"]
    unknown = sorted(disabled.keys() - mlinter.TRF_RULES.keys())
    if unknown:
        raise SystemExit(f"{rules_file.name} disables rules that mlinter does not have: {unknown}")
    return set(mlinter.TRF_RULES) - disabled.keys()


def findings(path: Path, rules: set[str]) -> Iterator[str]:
    """Apply the rules to one file; a sibling passes as modelling code."""
    known = path.name.startswith(("modeling_", "configuration_"))
    shown_as = path if known else path.with_name(f"modeling_{path.name}")
    for found in mlinter.analyze_file(shown_as, path.read_text(encoding="utf-8"), rules):
        yield f"{path.relative_to(ROOT)}:{found.line_number}: {found.message}"


def main() -> int:
    """Print every finding; the exit status is 1 if there is one."""
    rules = enabled_rules(ROOT / "mlinter.toml")
    files = sorted(MODEL.glob("*.py"))
    found = [line for path in files for line in findings(path, rules)]
    print("\n".join(found) or f"mlinter: {len(files)} files hold to {len(rules)} rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
