"""hf_tformer beside its peers: the same weights, tokens and threads, in one process.

python -m benchmarks                  the names
python -m benchmarks greedy           one of them
python -m benchmarks all --write      all of them, and RESULTS.md
"""
