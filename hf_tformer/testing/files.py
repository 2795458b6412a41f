"""Promises about saved files and who can open them."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedConfig

from ..checking import check
from .promise import Promises, promise
from .travel import expect_same_elsewhere, write


class FilePromises(Promises):
    @promise
    def test_saved(self, tmp_path: Path) -> None:
        """A model that is saved and loaded again is the same, to the last bit.

        Give every field of the configuration a type and a default, and every parameter a value in
        _init_weights. Keep no other tensors: what a constructor computes is lost on loading.
        """
        model = self.build().to(torch.bfloat16)
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.fill_(number + 1)  # so that two that are swapped differ
        model.save_pretrained(tmp_path)
        assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".py", ".safetensors"}
        loaded, report = self.model_class.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(report.values()), report
        assert described(loaded.config) == described(model.config)
        found, expected = dict(loaded.named_parameters()), dict(model.named_parameters())
        assert found.keys() == expected.keys()
        for name, parameter in expected.items():
            assert torch.equal(found[name], parameter), f"{name} is not what was saved"
        fresh = dict(self.build().named_buffers())
        for name, buffer in loaded.named_buffers():
            assert torch.equal(buffer, fresh[name]), f"{name} is not what a new model computes"

    @promise
    def test_ties(self, tmp_path: Path) -> None:
        """Tied tables are one tensor before and after saving, and in the file; untied ones are two.

        Name them in _tied_weights_keys of the head, and obey tie_word_embeddings.
        """
        for tie in (True, False):
            model = self.build(tie_word_embeddings=tie)
            model.save_pretrained(tmp_path / str(tie))
            loaded = self.model_class.from_pretrained(tmp_path / str(tie))
            for each in (model, loaded):
                head, table = each.get_output_embeddings(), each.get_decoder().embed_tokens
                assert (head.weight.data_ptr() == table.weight.data_ptr()) == tie
            names = load_file(tmp_path / str(tie) / "model.safetensors")
            assert ("lm_head.weight" in names) != tie

    @promise
    def test_travels(self, tmp_path: Path) -> None:
        """A saved model opens where neither this package nor your files can be imported, gives the
        same outputs, and can be saved again.

        Import torch, transformers and `from .file import name`; fill auto_map and call
        register_for_auto_class for each class.
        """
        model = self.build()
        answers = write(tmp_path / "saved", self.family, model)
        assert {"AutoConfig", "AutoModel", self.auto_name} <= set(model.config.auto_map)
        cases = (
            (tmp_path / "saved", self.auto_name, answers, tmp_path / "saved again"),
            (tmp_path / "saved again", self.auto_name, answers, tmp_path / "third"),
        )
        expect_same_elsewhere(tmp_path, *cases)

    @promise
    def test_check(self, tmp_path: Path) -> None:
        """`tformer check` finds nothing wrong with a saved model.

        `tformer check FOLDER` prints all its findings.
        """
        self.build().save_pretrained(tmp_path)
        failed = [finding for finding in check(tmp_path) if finding.verdict == "fail"]
        assert not failed, "\n".join(f"{finding.name}: {finding.detail}" for finding in failed)


def described(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the fields of a configuration that describe the model, not the folder it is from."""
    of_the_folder = ("architectures", "auto_map", "transformers_version", "_name_or_path")
    return {n: value for n, value in config.to_dict().items() if n not in of_the_folder}
