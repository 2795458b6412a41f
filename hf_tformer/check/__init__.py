"""What is wrong with a model folder that brings its own code.

folder.py         the folder to check: a local one, or a snapshot of a repository
reading.py        what can be said without running anything; source_code.py reads the code
fresh_process.py  runs probe.py, which runs the folder: probe_weights.py, probe_answers.py
report.py         `hf_tformer.check`: all of it, as findings
command.py        `tformer check`
"""

from .folder import CheckError
from .report import Finding, check

__all__ = ["CheckError", "Finding", "check"]
