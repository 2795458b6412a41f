"""Say how two tables are untied that hold different values though a configuration ties them."""

from .checkpoints import Checkpoint
from .format import SEQ2SEQ
from .plain import PlainFormat
from .rules import SavedTensors
from .translation import AnySide

IN_CONFIG = "where transformers keeps both: set tie_word_embeddings to false in config.json"
IN_OURS = (
    "so they were trained apart: set tie_word_embeddings (of the output projection) or "
    "share_encoder_decoder_embeddings (of source and target) to false in config.json"
)


def how_to_untie(
    reader: AnySide, tensors: SavedTensors, checkpoint: Checkpoint, first: str, second: str
) -> str:
    """Return the end of the refusal of two tables, with a remedy that the reader supports."""
    if isinstance(reader, PlainFormat):
        setting = reader.ties.get(second) or reader.ties.get(first)
        if setting is None:
            return f"as {reader.name} always does: describe the file with --rules instead"
        return f"so they were trained apart: give --set {setting}=false"
    if reader.config_name == SEQ2SEQ.config_name:
        return IN_OURS
    # Untied, each of them is read by its own name.
    stored = set(checkpoint.names())
    kept = tensors.canonical(first)
    absent = [name for name, one in tensors.aliases.items() if one == kept and name not in stored]
    table = kept if kept in stored else first
    copies = f", and store {table} as {' and '.join(sorted(absent))} too" if absent else ""
    return IN_CONFIG + copies
