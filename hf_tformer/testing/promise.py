"""What a promise is, and what all of them are tried on: a small model of the class under test."""

import inspect
from functools import cached_property, wraps

import pytest
import torch
from transformers.models.auto import modeling_auto

from .families import Family, random_rows, randomise

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ROWS = random_rows([3, 9, 6, 1])


class BrokenPromiseError(AssertionError):
    """Which promise was broken, and where to read."""


def promise(test):
    """A test whose failure says what was promised; a class may waive it by name, with a reason."""
    name = test.__name__.removeprefix("test_")
    told = inspect.cleandoc(test.__doc__)

    @wraps(test)
    def kept(self, *args, **kwargs):
        if name in self.waived:
            pytest.skip(f"waived: {self.waived[name]}")
        try:
            test(self, *args, **kwargs)
        except Exception as error:
            raise BrokenPromiseError(f"{name} is broken. {told}") from error

    kept.is_promise = True
    return kept


class Promises:
    """What a subclass says of its model:

    model_class  the head that is trained, such as MineForCausalLM
    fields       fields of its configuration, beside those of a small model, whose texts have up to
                 101 words
    waived       promise → the reason why this model cannot keep it
    """

    model_class: type
    fields: dict = {}
    waived: dict = {}
    family_class: type  # of the subclasses below
    auto_name: str

    @pytest.fixture(autouse=True)
    def same_numbers(self):
        """One thread: the models are tiny, and more would add in another order."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.manual_seed(0)
        yield
        torch.set_num_threads(threads)

    @cached_property
    def family(self) -> Family:
        return self.family_class(
            self.family_class.__name__.lower(),
            self.model_class.config_class,
            self.model_class,
            None,
            getattr(modeling_auto, self.auto_name),
            {**self.family_class.usual_sizes, **self.fields},
        )

    def build(self, **fields):
        """A small model with random weights, which attends as it does by itself."""
        return self.randomise(self.model_class(self.family.config(**fields))).eval()

    def randomise(self, model):
        """To be replaced where a parameter cannot have any value, such as one that divides."""
        return randomise(model)

    def test_waived(self):
        """What is waived are promises, each for a reason.

        Their names are those of the tests without `test_`.
        """
        known = {
            name.removeprefix("test_")
            for name in dir(self)
            if hasattr(getattr(type(self), name), "is_promise")
        }
        unknown = sorted(set(self.waived) - known)
        assert not unknown, f"waived names {unknown}: choose from {', '.join(sorted(known))}"
        silent = sorted(name for name, reason in self.waived.items() if not str(reason).strip())
        assert not silent, f"waived gives no reason for {silent}: say why in a sentence"
