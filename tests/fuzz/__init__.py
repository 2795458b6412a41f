"""Random configurations × random batches × the promises that every model has to keep.

`configurations.py` and `cases.py` draw what is tried, `promises_*.py` hold one function for each
promise, `__main__.py` is `make fuzz`, and `test_promises.py` is the share that `make test` runs.
"""
