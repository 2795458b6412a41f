"""Training at scale: data that no memory holds, and many processes."""

from .preparing import write_tokens
from .stream import StreamedRows
from .tokens import TokenRows, TokensError, collate_rows

__all__ = ["StreamedRows", "TokenRows", "TokensError", "collate_rows", "write_tokens"]
