"""What is fast here are the families that write."""

import pytest

from support.families import WRITERS


@pytest.fixture(params=WRITERS, ids=lambda family: family.name)
def family(request):
    return request.param
