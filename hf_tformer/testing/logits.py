"""Promises about logits."""

from pathlib import Path

import pytest
import torch

from .families import BACKENDS, random_rows
from .promise import CLOSE, ROWS, Promises, promise
from .simulated_flash import install


class LogitsPromises(Promises):
    @promise
    @pytest.mark.parametrize("side", ["left", "right"])
    @torch.no_grad()
    def test_padding(self, side: str) -> None:
        """A sequence has the same logits in a padded batch as alone, padded on either side.

        Add attention_mask to your scores (sdpa passes it as booleans, True where a query attends to
        a key, or None), and take positions from position_ids, not from the index of a token.
        """
        model = self.build()
        together = self.family.logits(model, ROWS, side)
        for row, logits in zip(ROWS, together, strict=True):
            (alone,) = self.family.logits(model, [row])
            torch.testing.assert_close(logits, alone, **CLOSE)

    @promise
    @pytest.mark.parametrize("backend", BACKENDS[1:])
    @torch.no_grad()
    def test_backends(self, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each attention backend that the model supports gives the logits of the eager one.

        Do not change what the backend receives, or set _supports_sdpa and _supports_flash_attn to
        False in your PreTrainedModel. Flash attention's kernel is simulated.
        """
        install(monkeypatch)
        model = self.build()
        flag = "_supports_sdpa" if backend == "sdpa" else "_supports_flash_attn"
        if not getattr(model, flag):
            pytest.skip(f"the model says that {backend} cannot serve it: {flag} is False")
        logits = []
        for name in ("eager", backend):
            model.config._attn_implementation = name
            logits.append(self.family.logits(model, ROWS, "left"))
        torch.testing.assert_close(*logits, **CLOSE)

    @promise
    @torch.no_grad()
    def test_outputs(self) -> None:
        """Hidden states and attention weights of every layer are returned on request.

        Return (output, weights) from your attention, and derive it from SelfAttention and the layer
        from that of the family.
        """
        model = self.build()
        model.config._attn_implementation = "eager"
        ids = torch.tensor(random_rows([7, 7]))
        wanted = {"output_hidden_states": True, "output_attentions": True}
        output = model(input_ids=ids, **self.family.target(ids), **wanted)
        layers = model.get_decoder().layers
        prefix = "decoder_" if model.config.is_encoder_decoder else ""
        states, weights = output[f"{prefix}hidden_states"], output[f"{prefix}attentions"]
        assert len(states) == len(layers) + 1
        shape = (2, model.config.num_attention_heads, 7, 7)
        assert [tuple(w.shape) for w in weights] == [shape] * len(layers)

    @promise
    def test_sharding(self) -> None:
        """Each layer class is declared to stay on one device, and no class of another model is.

        Name the classes of your layers in _no_split_modules of your PreTrainedModel, and derive
        every part that is a model from it.
        """
        model = self.build()
        names = {type(module).__name__ for module in model.modules()}
        missing = set(model._no_split_modules) - names
        assert not missing, f"_no_split_modules names {sorted(missing)}, which are not in the model"
        layers = {type(layer).__name__ for layer in model.get_decoder().layers}
        assert layers <= set(model._no_split_modules), f"{sorted(layers)} may be split"

    @promise
    @torch.no_grad()
    def test_resize(self, tmp_path: Path) -> None:
        """A vocabulary can be resized: the tables grow together, and stay tied where they were.

        Name the table embed_tokens and the head lm_head, or override get_input_embeddings.
        """
        model = self.build()
        model.resize_token_embeddings(110)
        model.save_pretrained(tmp_path)
        ids = torch.tensor(random_rows([7, 7]))
        for each in (model, self.model_class.from_pretrained(tmp_path)):
            assert each.config.vocab_size == each.get_input_embeddings().num_embeddings == 110
            logits = each(input_ids=ids, **self.family.target(ids)).logits
            assert logits.shape == (2, 7, 110)
            head, table = each.get_output_embeddings(), each.get_decoder().embed_tokens
            is_tied = head.weight.data_ptr() == table.weight.data_ptr()
            assert is_tied == each.config.tie_word_embeddings


class PackingPromises(Promises):
    @promise
    @torch.no_grad()
    def test_packing(self) -> None:
        """Sequences that are packed into one have the same logits as each alone.

        Positions that restart mark their boundaries, and the mask separates them: add it to your
        scores.
        """
        model = self.build()
        rows = ROWS[:3]
        joined = torch.tensor([[token for row in rows for token in row]])
        positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
        packed = model(input_ids=joined, position_ids=positions).logits[0]
        alone = torch.cat([model(input_ids=torch.tensor([row])).logits[0] for row in rows])
        torch.testing.assert_close(packed, alone, **CLOSE)
