"""Make a folder that opens today of one with code of others: `tformer rehome`.

rehome.py          the three ways, in order, and what counts as proof
rehomed.py         what became of a folder
foreign_folder.py  the folder, as it can be known without running any of it
table.py           the code that is known: which class computes the same, renamed how
fused_layers.py    … of code that fuses queries, keys and values
llama_kin.py       … of code that computes what Llama does
shared_names.py    what these two share
renaming.py        a renaming of fields and tensors
candidate.py       write the tensors of a folder as those of another class
repairs.py         what answers an error of code that no longer runs
witness.py         let the code of a folder answer, behind walls
probe.py           the program of that process
comparing.py       compare two sets of answers
side_files.py      the files beside the weights
card.py            the section of the model card
command.py         `tformer rehome`
"""
