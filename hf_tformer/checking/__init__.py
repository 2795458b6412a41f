"""Check a model folder that brings its own code: find what is wrong with it.

report.py         `hf_tformer.check`: all checks, as findings (findings.py)
folder.py         the folder to check: a local one, or a snapshot of a repository
files.py          its files, opened safely; source_code.py: its files of code
reading.py        checks that run no code; reading_data.py: those of files that are no code
references.py     find what the code refers to; its judges are calls.py, by_name.py (attributes),
                  changes.py (of libraries) and strings.py, on the ground of judging.py
meanings.py       what names stand for, by scopes.py; texts.py: which strings code puts together
names.py          decide which names are dangerous, by known_names*.py, and by definitions.py,
                  which finds where a library defines a name
permission.py     decide whether the code may run, and which walls must stand around it
fresh_process.py  run probe.py, which loads the folder: probe_weights.py, probe_answers.py,
                  probe_generation.py, probe_training.py; both know the list, probe_plan.py
behind_walls.py   start a program by walls.py, which restricts it by what the kernel offers:
                  namespaces, limits, Landlock (walls_kernel.py), fewer calls (walls_filter.py)
probe_loading.py  load what `publish` sent
package_code.py   find the code that a checkpoint of ours carries today
same_answers.py   compare a folder's answers with those of the package's code (probe_heads.py)
command.py        `tformer check`
"""

from .findings import Finding
from .folder import CheckError
from .report import check

__all__ = ["CheckError", "Finding", "check"]
