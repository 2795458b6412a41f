"""Out of Python: our models as files that other runtimes open, proven in the runtime itself."""
