"""Every class that can be trained × every layout over several processes = one process.

`heads.py` holds what is trained and on what, `table.py` where each head is trained and why not
elsewhere, `processes.py` starts groups of processes, `training.py` is what each of them runs.
"""
