"""What the runtime raises on purpose.

DsparkError
├── InvalidRequest(DsparkError, ValueError)   a request that cannot be served as it was asked
├── WeightError(DsparkError, ValueError)      a tensor is missing, left over or of another shape
└── NonFiniteLogits(DsparkError, ArithmeticError)   the target computed NaN or infinity

One handler for `DsparkError` catches them all.
"""

from __future__ import annotations

from dspark import DsparkError


class InvalidRequest(DsparkError, ValueError):
    """A request, or an engine setting, that is refused before any work is done.

    `param` names the parameter that is wrong, where it is one by itself; None where it is the
    prompt, or not a request at all.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class WeightError(DsparkError, ValueError):
    """The tensors handed to a model are not the ones its configuration asks for."""


class NonFiniteLogits(DsparkError, ArithmeticError):
    """The target's logits are not numbers, so there is no token that could be called its choice."""
