"""What is fast here are the families that write."""

import pytest
import torch

from support.families import WRITERS


@pytest.fixture(params=WRITERS, ids=lambda family: family.name)
def family(request):
    return request.param


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
