"""Training on many processes: which rows, in which layout, how fast, and nothing lost."""
