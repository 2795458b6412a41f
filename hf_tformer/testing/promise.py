"""Define what a promise is, and the small model on which all promises are tested."""

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest
import torch
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from .families import Family, random_rows, randomise

Arguments = ParamSpec("Arguments")
Tests = TypeVar("Tests", bound="Promises")

CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
ROWS = random_rows([3, 9, 6, 1])


class BrokenPromiseError(AssertionError):
    """The name of the promise that was broken, what it promises, and how to keep it."""


def promise(
    test: Callable[Concatenate[Tests, Arguments], None],
) -> Callable[Concatenate[Tests, Arguments], None]:
    """Let the failure of a test say what was promised, and let classes waive it with a reason."""
    name = test.__name__.removeprefix("test_")
    explanation = inspect.cleandoc(test.__doc__ or "")

    @wraps(test)
    def kept(self: Tests, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if name in self.waived:
            pytest.skip(f"waived: {self.waived[name]}")
        try:
            test(self, *args, **kwargs)
        except Exception as error:
            raise BrokenPromiseError(f"{name} is broken. {explanation}") from error

    kept.__dict__["is_promise"] = True
    return kept


class Promises:
    """Tests that a subclass runs on its model, which it describes by these attributes:

    model_class  the head that is trained, such as MineForCausalLM
    fields       fields of its configuration, beside those of a small model with 101 tokens in its
                 vocabulary
    waived       promise → the reason why this model cannot keep it
    """

    model_class: type[PreTrainedModel]
    fields: dict[str, Any] = {}
    waived: dict[str, str] = {}
    family_class: type[Family]  # of the subclasses in __init__.py
    auto_name: str

    @pytest.fixture(autouse=True)
    def same_numbers(self) -> Iterator[None]:
        """Seed each test, and use one thread: more would add numbers in another order."""
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

    def build(self, **fields: object) -> PreTrainedModel:
        """Build a small model with random weights and its default attention implementation."""
        return self.randomise(self.model_class(self.family.config(**fields))).eval()

    def randomise(self, model: PreTrainedModel) -> PreTrainedModel:
        """Fill all parameters; override it where one cannot have any value, such as a divisor."""
        return randomise(model)

    def test_waived(self) -> None:
        """Only promises are waived, each with a reason.

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
