"""Promises about generation and caches."""

from typing import Any

import pytest
import torch

from .families import GeneratingFamily, random_rows
from .promise import CLOSE, ROWS, Promises, promise


class GenerationPromises(Promises):
    family: GeneratingFamily

    @promise
    @torch.no_grad()
    def test_causality(self) -> None:
        """No token attends to later ones.

        Add attention_mask to your scores; with sdpa it may be None, which means a causal mask.
        """
        model = self.build()
        ids = torch.tensor(random_rows([9, 9]))
        changed = ids.clone()
        changed[:, 5:] = ids[:, 5:].flip(0)
        before, after = (self.family.at_once(model, each)[:, :5] for each in (ids, changed))
        torch.testing.assert_close(after, before, **CLOSE)

    @promise
    @pytest.mark.parametrize("cache", ["dynamic", "static"])
    @pytest.mark.parametrize("chunk", [1, 4])
    @torch.no_grad()
    def test_cached_steps(self, cache: str, chunk: int) -> None:
        """A sequence that is read in steps beside a cache has the logits of one forward pass.

        Pass keys and values to past_key_values.update and attend to what it returns; keep nothing
        else between two calls.
        """
        model = self.build()
        ids = torch.tensor(random_rows([9, 9]))
        past = self.family.static_cache(model, 12) if cache == "static" else None
        in_steps = self.family.steps(model, ids, chunk, past)
        torch.testing.assert_close(in_steps, self.family.at_once(model, ids), **CLOSE)

    @promise
    @pytest.mark.parametrize("beams", [1, 3], ids=["greedy", "beams"])
    def test_caches(self, beams: int) -> None:
        """Every cache generates the same tokens as no cache, in a padded batch.

        See cached_steps and padding: if they are kept, look for what is computed from the length
        of the input instead of from position_ids.
        """
        model = self.build()
        options: dict[str, Any] = {"max_new_tokens": 10, "do_sample": False, "num_beams": beams}
        expected = self.family.generate(model, ROWS, **options, use_cache=False)
        for cache in ("dynamic", "static"):
            found = self.family.generate(model, ROWS, **options, cache_implementation=cache)
            assert found == expected, f"with a {cache} cache"

    @promise
    @torch.no_grad()
    def test_generate(self) -> None:
        """generate returns the tokens of a loop that computes the whole sequence for each token.

        Leave prepare_inputs_for_generation alone, and keep forward's arguments.
        """
        model = self.build()
        expected = [self.family.written_by_hand(model, row) for row in ROWS]
        options: dict[str, Any] = {"max_new_tokens": 10, "do_sample": False}
        assert self.family.generate(model, ROWS, **options) == expected
