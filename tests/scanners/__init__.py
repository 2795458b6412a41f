"""What other scanners say of the forms of the corpus, beside `tformer check`: `make scanners`.

`forms.py` writes each form as a model folder, `tools.py` installs each scanner in an environment of
its own and asks it, `page.py` makes the tables of docs/SCANNERS.md, and `__main__.py` does all of
it. `test_scanners.py` sees when the tables are stale.
"""
