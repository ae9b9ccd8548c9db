"""Sizes of arrays as a kernel's source writes them: `2 * kv_heads + heads`, `pages`, `128`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from dspark.kernels.errors import SourceError

Expression = ast.expr


def parse_expression(text: str, where: str) -> Expression:
    """The expression `text`: names and numbers under `+`, `-`, `*` and `/`.

    Raises:
        SourceError: it is none; the message begins with `where`.
    """
    try:
        parsed = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        parsed = None
    if parsed is None or not _is_plain(parsed):
        raise SourceError(f"{where}: `{text.strip()}` is no size in names and numbers")
    return parsed


def names_in(expression: Expression) -> set[str]:
    """The names that `expression` mentions."""
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def evaluate(expression: Expression, values: Mapping[str, int]) -> int:
    """What `expression` comes to, with C's integer division."""
    if isinstance(expression, ast.Name):
        return values[expression.id]
    if isinstance(expression, ast.BinOp):
        left, right = evaluate(expression.left, values), evaluate(expression.right, values)
        if isinstance(expression.op, ast.Add):
            return left + right
        if isinstance(expression.op, ast.Sub):
            return left - right
        return left * right if isinstance(expression.op, ast.Mult) else left // right
    # INVARIANT: `parse_expression` let nothing else through.
    assert isinstance(expression, ast.Constant)
    assert isinstance(expression.value, int)
    return expression.value


def _is_plain(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        known = isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div)
        return known and _is_plain(node.left) and _is_plain(node.right)
    is_number = isinstance(node, ast.Constant) and type(node.value) is int
    return is_number or isinstance(node, ast.Name)
