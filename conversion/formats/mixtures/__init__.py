"""The formats of mixtures of experts in transformers, one file for each kin.

Those of Granite are in decoders/granite.py, beside the models that they share all else with.
"""

from . import glm, mixtral, qwen

FORMATS = (*mixtral.FORMATS, *qwen.FORMATS, *glm.FORMATS)
