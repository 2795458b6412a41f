"""All promises by name: what each is tried on, and the function that raises where it is broken."""

from . import promises_configuration as configuration
from . import promises_encoder as encoder
from . import promises_files as files
from . import promises_generate as generate
from . import promises_logits as logits
from . import promises_loss as loss
from . import promises_refusals as refusals

PROMISES = {
    "alone": (logits.alone_cases, logits.check_alone),
    "chunks": (logits.chunk_cases, logits.check_chunks),
    "backend": (logits.backend_cases, logits.check_backend),
    "fast_logits": (logits.fast_logits_cases(), logits.check_fast_logits),
    "alone_text": (generate.alone_text_cases, generate.check_alone_text),
    "fast_text": (generate.fast_text_cases, generate.check_fast_text),
    "lean_loss": (loss.lean_cases, loss.check_lean_loss),
    "one_loss": (loss.one_loss_cases, loss.check_one_loss),
    "checkpointed": (loss.checkpointed_cases, loss.check_checkpointed),
    "packed": (encoder.packed_cases, encoder.check_packed),
    "window": (encoder.window_cases, encoder.check_window),
    "saved": (files.saved_cases, files.check_saved),
    "converted": (files.converted_cases(), files.check_converted),
    "refused": (refusals.wrong_configurations(), refusals.check_refused),
    "configuration_file": (
        configuration.configuration_files(),
        configuration.check_configuration_file,
    ),
}
