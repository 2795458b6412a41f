"""What is wrong with a model folder that brings its own code.

folder.py         the folder to check: a local one, or a snapshot of a repository
files.py          its files, opened with suspicion; source_code.py: those of code
reading.py        what can be said without running anything; reading_data.py: of what is no code
references.py     what the code refers to: scopes.py, meanings.py; names.py, known_names.py judge it
fresh_process.py  runs probe.py, which runs the folder: probe_weights.py, probe_answers.py
behind_walls.py   starts it by walls.py, which raises what the kernel offers against its code:
                  namespaces, limits, Landlock (walls_kernel.py), fewer calls (walls_filter.py)
report.py         `hf_tformer.check`: all of it, as findings
command.py        `tformer check`
"""

from .folder import CheckError
from .report import Finding, check

__all__ = ["CheckError", "Finding", "check"]
