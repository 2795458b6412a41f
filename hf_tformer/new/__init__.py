"""Begin a model of your own kind: a folder with our model files and a few lines to change.

writing.py   writes the folder, whole or not at all
templates/   the files to change, for a model called Mine; they are no modules of this package, and
             find what they import only in the new folder
readme.py    the folder's README.md
command.py   `tformer new`
"""

from .writing import NewError, write_new

__all__ = ["NewError", "write_new"]
