"""Linear layers on the CPU whose rows come out the same however many rows there are.

oneDNN's prepacked product reads the weights once for up to about sixteen rows, so verifying eight
costs about as much as decoding one. It is what torch's own compiler emits, but it has no public
name; where it is missing, `torch.nn.functional.linear` takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

Product = Callable[[torch.Tensor], torch.Tensor]

# Row counts around those at which kernels are known to change, and the rows compared, from the end.
_PROBED_COUNTS = (1, 2, 3, 5, 8, 9, 16, 17, 32, 33, 64, 65, 130, 256)
_PROBED_ROWS = (1, 2, 3, 7, 16, 33, 66, 130, 256)

_MOST_PROBED_OUTPUTS = 16_384

# Up to here every row count has a kernel of its own: these are the decoding steps.
_FEW_ROWS = 16

# oneDNN fetches as many of a step's four lines of weights ahead as it has rows. Where a row has to
# be filled up anyway, four are faster than two.
_FILLED_ROWS = 4


class RowRule(NamedTuple):
    """How many rows a product may be given: a multiple of `multiple`, and no more than `most`."""

    multiple: int
    most: int


# From the cheapest to the one that must hold, since it knows a single row count.
_RULES = (
    *(RowRule(multiple, max(_PROBED_COUNTS)) for multiple in (1, 2, 4, 8, 16)),
    *(RowRule(multiple, 32) for multiple in (1, 2, 4, 8)),
    RowRule(8, 8),
)

_measured: dict[tuple[str, torch.dtype, int, int, int], RowRule] = {}


class CpuLinear:
    """A weight [N, H], with a bias [N] or without, as a function of rows [R, H].

    `packed` says whether oneDNN holds the weight in its own layout.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, *, packed: bool) -> None:
        self.packed = packed
        self.bias = bias
        self._product = _product(weight, packed=packed)
        self.rule = measured_rule(weight, packed=packed)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = by_rule(self._product, x, self.rule)
        return out if self.bias is None else out + self.bias


def packing_available() -> bool:
    """Whether this torch build has oneDNN and still offers its prepacked product."""
    available: bool = torch._C._has_mkldnn
    return available and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def prepare(
    weight: torch.Tensor, bias: torch.Tensor | None, kind: Literal["best", "packed", "plain"]
) -> CpuLinear:
    """The linear layer of this weight and bias, held as `kind` says."""
    packed = kind == "packed" or (kind == "best" and packing_available())
    return CpuLinear(weight, bias, packed=packed)


def by_rule(product: Product, x: torch.Tensor, rule: RowRule) -> torch.Tensor:
    """`product` of `x` [R, H], handed over in row counts that the rule allows."""
    rows = x.shape[0]
    if rows > rule.most:
        return torch.cat([by_rule(product, part, rule) for part in torch.split(x, rule.most)])
    missing = -rows % _multiple(rows, rule)
    if not missing:
        return product(x)
    if rows == 1:
        return product(x.expand(1 + missing, -1))[:1]
    return product(torch.nn.functional.pad(x, (0, 0, 0, missing)))[:rows]


def _multiple(rows: int, rule: RowRule) -> int:
    """The product is given the next multiple of this."""
    if rows > _FEW_ROWS:
        # One kernel is compiled and kept per row count, so large counts are rounded up to few.
        return 16 if rows <= 4 * _FEW_ROWS else 32
    if rule.multiple > 1 and rows < _FILLED_ROWS:
        return max(rule.multiple, _FILLED_ROWS)
    return rule.multiple


def measured_rule(weight: torch.Tensor, *, packed: bool) -> RowRule:
    """The rule under which this product's rows do not depend on the row count.

    It is measured, once per shape, on this machine with this number of threads: which kernel runs
    is oneDNN's or MKL's choice, and nothing documents it.
    """
    outputs, inputs = weight.shape
    # The order of a sum depends on how the inputs are cut, not on how many outputs a large
    # vocabulary has; probing 150,000 would take seconds.
    outputs = min(outputs, _MOST_PROBED_OUTPUTS)
    name = "packed" if packed else "plain"
    key = (name, weight.dtype, outputs, inputs, torch.get_num_threads())
    if key not in _measured:
        # Every sum cancels to nothing but its rounding errors, which show the order it was taken
        # in; with the weight's own values, a bfloat16 result would mostly hide it.
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(outputs, inputs // 2, generator=generator)
        x = torch.randn(max(_PROBED_COUNTS), inputs // 2, generator=generator)
        odd = (0, inputs % 2)
        product = _product(
            torch.nn.functional.pad(torch.cat([probe, -probe], 1), odd).to(weight.dtype),
            packed=packed,
        )
        rows = torch.nn.functional.pad(torch.cat([x, x], 1), odd).to(weight.dtype)
        _measured[key] = first_rule_that_holds(product, rows)
    return _measured[key]


def first_rule_that_holds(product: Product, x: torch.Tensor) -> RowRule:
    """The cheapest rule under which the rows of `x` come out alike at every row count tried.

    Raises:
        ArithmeticError: none does.
    """
    for rule in _RULES:
        alone = {row: by_rule(product, x[len(x) - row :][:1], rule)[0] for row in _PROBED_ROWS}
        if all(_rows_hold(by_rule(product, x[-count:], rule), alone) for count in _PROBED_COUNTS):
            return rule
    raise ArithmeticError("this machine's matrix product gives a row other bits at every row count")


def _rows_hold(out: torch.Tensor, alone: dict[int, torch.Tensor]) -> bool:
    return all(torch.equal(out[-row], bits) for row, bits in alone.items() if row <= len(out))


def _product(weight: torch.Tensor, *, packed: bool) -> Product:
    if not packed:
        return lambda x: torch.nn.functional.linear(x, weight)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, 8)
    linear = torch.ops.mkldnn._linear_pointwise.default

    def product(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = linear(x, laid_out, None, "none", [], "")
        return out

    return product
