"""The formats of other libraries and programs, a file for each kin."""
