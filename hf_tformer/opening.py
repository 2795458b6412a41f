"""Open a model folder or repository without running its code; a failure is one sentence."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .families import FAMILIES
from .path_safety import printable

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


class OpeningError(Exception):
    """A sentence that says why something cannot be opened."""


def open_model(
    source: str,
    revision: str | None = None,
    *,
    writes: bool = True,
    trusts: bool = False,
    **options: object,
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Open a language model, with its adapters if `source` holds some, and its tokenizer.

    If `writes`, the model has to generate, and an encoder is refused. If `trusts`, the code that
    the folder brings may run.
    """
    refuse_missing_folder(source, revision)
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

    base, its_revision = find_base(source, revision)
    config = open_pretrained(AutoConfig, base, revision=its_revision, trust_remote_code=trusts)
    if writes and is_encoder(config):
        raise OpeningError(
            f"{source} is an encoder, which does not generate: give a decoder or an encoder-decoder"
        )
    if config.model_type == "tformer_encoder":
        auto_class = AutoModelForMaskedLM
    elif is_encoder_alone(config):
        raise OpeningError(
            f"{source} is the encoder of an encoder-decoder, saved without its decoder: give the "
            "folder of both"
        )
    else:
        auto_class = class_that_generates(config, is_needed=writes)
    model = open_pretrained(auto_class, source, revision, trust_remote_code=trusts, **options)
    return model, open_pretrained(AutoTokenizer, source, revision=revision)


def is_encoder(config: "PreTrainedConfig") -> bool:
    """Return whether tokens attend to later ones, even where transformers has a causal class."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    flags = ("is_encoder_decoder", "is_decoder", "causal", "auto_map")  # causal is XLM's
    is_masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    decodes = any(getattr(config, flag, False) for flag in flags)
    return config.model_type == "tformer_encoder" or (is_masked and not decodes)


def is_encoder_alone(config: "PreTrainedConfig") -> bool:
    """Return whether this is the encoder of an encoder-decoder, saved without its decoder."""
    family = FAMILIES.get(config.model_type)
    return family is not None and family.standalone_encoder in (config.architectures or ())


def class_that_generates(config: "PreTrainedConfig", is_needed: bool) -> type:
    """Return the Auto class that generates.

    If none is needed and the folder was saved with another head, return AutoModel.
    """
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if config.is_encoder_decoder:
        return AutoModelForSeq2SeqLM
    saved = (config.architectures or [""])[0]
    brings_code = hasattr(config, "auto_map")
    is_ours = config.model_type.startswith("tformer_")
    can_generate = saved in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() or brings_code or is_ours
    return AutoModelForCausalLM if is_needed or can_generate else AutoModel


def open_pretrained(
    auto_class: type[Any], source: str, revision: str | None = None, **options: object
) -> Any:
    """Call `auto_class.from_pretrained`; code runs only where `options` allow it."""
    refuse_missing_folder(source, revision)
    options = {"trust_remote_code": False, **options}
    try:
        return auto_class.from_pretrained(source, revision=revision, **options)
    except Exception as error:  # strange files fail in many ways
        what = auto_class.__name__.removeprefix("Auto").lower()
        raise OpeningError(f"{source} cannot be opened as a {what}: {first_line(error)}") from error


def find_base(source: str, revision: str | None) -> tuple[str, str | None]:
    """Return the model whose configuration counts: for adapters, the one they were trained on."""
    from transformers.utils import find_adapter_config_file

    try:
        adapters = find_adapter_config_file(source, revision=revision)
        if adapters is None:
            return source, revision
        config = json.loads(Path(adapters).read_text(encoding="utf-8"))
        return config["base_model_name_or_path"], config.get("revision")
    except (OSError, ValueError, KeyError) as error:
        raise OpeningError(f"{source} cannot be opened as a model: {first_line(error)}") from error


def refuse_missing_folder(source: str, revision: str | None = None) -> None:
    """Refuse a missing path, and any name if no Hub answers: transformers tries for a minute."""
    from huggingface_hub import snapshot_download, try_to_load_from_cache
    from huggingface_hub.errors import LocalEntryNotFoundError

    is_path = source.startswith((".", "/", "~")) or source.count("/") > 1
    if Path(source).expanduser().is_dir():
        return
    if is_path:
        raise OpeningError(f"there is no folder {source}: give one that save_pretrained wrote")
    names = ["config.json", "adapter_config.json", "tokenizer_config.json"]
    try:
        cached = [try_to_load_from_cache(source, name, revision=revision) for name in names]
        if not any(isinstance(path, str) for path in cached):
            snapshot_download(source, revision=revision, allow_patterns=names)
    except LocalEntryNotFoundError as error:
        raise OpeningError(
            f"there is no folder {source}, and the Hub cannot be reached: check the name, or the "
            "connection"
        ) from error
    except (OSError, ValueError):  # transformers says what is wrong with a repository
        return


def tied_as_list(error: BaseException) -> str | None:
    """Return what to write instead, if a class declares its ties as transformers 4 did.

    This is the most common fault of old code, and transformers 5 only says that a list has no
    attribute `keys`.
    """
    frame = error.__traceback__
    while frame is not None:
        model_class = type(frame.tb_frame.f_locals.get("self"))
        tied = getattr(model_class, "_tied_weights_keys", None)
        if isinstance(error, AttributeError) and isinstance(tied, (list, tuple, set)):
            name = printable(next(iter(tied), "lm_head.weight"))
            return (
                f"{model_class.__name__} declares _tied_weights_keys as a list, which transformers "
                f'5 does not read: write {{"{name}": NAME}}, where NAME is the weight that it is '
                'tied to, such as "model.embed_tokens.weight"'
            )
        frame = frame.tb_next
    return None


def first_line(error: Exception) -> str:
    """Return the first line of another library's error; more lines advise on other cases."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
