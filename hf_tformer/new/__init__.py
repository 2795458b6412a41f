"""A model of one's own kind, begun: a folder with our plain files and a few lines to change.

writing.py          the folder, whole or not at all
decoder/, seq2seq/, encoder/
                    what is written into it besides our files, for a model called Mine; these are no
                    modules of this package, and what they import is beside them only there
readme.py           its README.md
command.py          `tformer new`
"""

from .writing import NewError, write_new

__all__ = ["NewError", "write_new"]
