"""The error of a training that cannot be as it is asked for."""


class TrainingError(ValueError):
    """Why not, and what to do, in one sentence."""
