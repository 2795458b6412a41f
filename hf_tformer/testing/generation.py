"""Promises about texts that are written, and the caches beside them."""

import pytest
import torch

from .families import random_rows
from .promise import CLOSE, ROWS, Promises, promise


class WritingPromises(Promises):
    @promise
    @torch.no_grad()
    def test_causality(self):
        """No token sees those behind it.

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
    def test_cached_steps(self, cache, chunk):
        """A text that is read in steps beside a cache has the logits of the text read at once.

        Hand keys and values to past_key_values.update and attend to what it returns; remember
        nothing else between two calls.
        """
        model = self.build()
        ids = torch.tensor(random_rows([9, 9]))
        past = self.family.static_cache(model, 12) if cache == "static" else None
        in_steps = self.family.steps(model, ids, chunk, past)
        torch.testing.assert_close(in_steps, self.family.at_once(model, ids), **CLOSE)

    @promise
    @pytest.mark.parametrize("beams", [1, 3], ids=["greedy", "beams"])
    def test_caches(self, beams):
        """Every cache gives the text that is written without one, in a padded batch.

        See cached_steps and padding: where they are kept, look for what is computed from the length
        of the input instead of from position_ids.
        """
        model = self.build()
        options = {"max_new_tokens": 10, "do_sample": False, "num_beams": beams}
        expected = self.family.generate(model, ROWS, **options, use_cache=False)
        for cache in ("dynamic", "static"):
            found = self.family.generate(model, ROWS, **options, cache_implementation=cache)
            assert found == expected, f"with a {cache} cache"

    @promise
    @torch.no_grad()
    def test_generate(self):
        """generate writes what a loop writes that reads the whole text again for each token.

        Leave prepare_inputs_for_generation alone, and keep forward's arguments.
        """
        model = self.build()
        expected = [self.family.written_by_hand(model, row) for row in ROWS]
        options = {"max_new_tokens": 10, "do_sample": False}
        assert self.family.generate(model, ROWS, **options) == expected
