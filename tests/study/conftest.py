"""Small models for the tools of people who study models: saved, and opened as they would be."""

import pytest

from support.elsewhere import trained_tokenizer, write


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where a random model of a family lies with its tokenizer."""
    written = {}

    def folder_of(family, **fields):
        key = (family.name, *fields.items())
        if key not in written:
            written[key] = tmp_path_factory.mktemp(family.name)
            write(written[key], family, **fields)
        return written[key]

    return folder_of


@pytest.fixture
def opened(folder):
    """A model of a family, by default with the fast backend."""

    def model_of(family, backend="sdpa", **fields):
        return family.auto.from_pretrained(folder(family, **fields), attn_implementation=backend)

    return model_of


@pytest.fixture
def tokenizer():
    return trained_tokenizer()
