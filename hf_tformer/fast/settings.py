"""What fast.enable() was given, for the modules that ask at each step."""

is_compiled = False  # decoding steps at batch size 1 (compiled.py)
