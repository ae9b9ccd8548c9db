"""What the runtime's tests share."""

from __future__ import annotations

import pytest
import torch

# These models are so small that handing work to a second thread costs more than doing it.
torch.set_num_threads(1)


@pytest.fixture(params=["packed", "plain"])
def linears(request: pytest.FixtureRequest) -> str:
    """Both ways of holding a weight on the CPU."""
    kind: str = request.param
    return kind
