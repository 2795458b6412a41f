"""The code that travels with every checkpoint. This file does not: it only orders imports.

Both model files import parts of transformers that end up importing its Auto classes. Were those
imported in the middle of a model file, the package would be asked to register a half-made class; so
they come first.
"""

from transformers.models.auto import modeling_auto as modeling_auto
