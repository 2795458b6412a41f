"""The errors that a conversion raises on purpose."""

from hf_tformer.path_safety import printable


class ConversionError(ValueError):
    """One sentence that names what cannot be converted, and the remedy."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))  # files and values may have any name


class MissingClassError(ConversionError):
    """The transformers that is installed is older than a class that is asked for."""


# Fields for which models that people know are refused: what these have that ours has no place for.
KNOWN = {
    "word_embed_proj_dim": "the embeddings of OPT-350M are narrower than its layers",
    "embedding_size": "the embeddings of the small ELECTRA are narrower than its layers",
    "use_qk_norm": "Command R+ has other weights for the norm of each head",
    "qk_layernorm": "StableLM-2-12B has other weights for the norm of each head",
    "relative_attention_max_distance": "the distances of all released T5 and UMT5 end at 128",
}


class UnexpressibleError(ConversionError):
    """A field has a value that the other side cannot express; `values` are those that convert."""

    def __init__(
        self, name: str, actual: object, format_name: str, values: tuple[object, ...]
    ) -> None:
        converts = "converts" if len(values) == 1 else "convert"
        reason = f" ({KNOWN[name]})" if name in KNOWN else ""
        super().__init__(
            f"{name} is {actual!r}, which {format_name} cannot express: only "
            f"{', '.join(map(repr, values))} {converts}{reason}"
        )
        self.name, self.values = name, values
