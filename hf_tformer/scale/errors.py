"""The error of a training that cannot run as it is configured."""


class TrainingError(ValueError):
    """The reason why a training cannot run and what to do, in one sentence."""
