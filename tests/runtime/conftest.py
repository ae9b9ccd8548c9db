"""What the runtime's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

# These models are so small that handing work to a second thread costs more than doing it.
torch.set_num_threads(1)


@pytest.fixture(params=["packed", "plain"])
def linears(request: pytest.FixtureRequest) -> str:
    """Both ways of holding a weight on the CPU."""
    kind: str = request.param
    return kind


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many threads torch has; which of them computes what may not show."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
