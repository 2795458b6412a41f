"""Collects what transformers and this package say while something runs."""

import logging
import warnings
from contextlib import contextmanager

from transformers.utils.logging import warning_once


@contextmanager
def listening():
    """Collects what is said: Python's warnings, and the log from WARNING on."""
    said = set()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.add((record.name, kind(record.getMessage())))
    names = ("transformers", "accelerate", "huggingface_hub", "hf_tformer")
    warning_once.cache_clear()
    for name in names:
        logging.getLogger(name).addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield said
            said |= {("warning", kind(str(warning.message))) for warning in caught}
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(handler)


def kind(message):
    """Without the names of tensors and the like, which follow a colon."""
    return message.partition(":")[0]
