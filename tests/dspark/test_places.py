"""Looking a path up, and finding the keys that no path follows."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from dspark.places import Blocked, look_up, steps, unread

CONFIG = {
    "a": 1,
    "n": None,
    "o": {"b": 2, "n": None, "q": {"r": 3}},
    "l": [{"x": 4}, {}],
    "p": MappingProxyType({"y": 5}),
}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("a", 1),
        ("n", None),
        ("z", None),
        ("o.b", 2),
        ("o.n", None),
        ("o.n.deeper", None),
        ("o.q.r", 3),
        ("l.0.x", 4),
        ("l.1.x", None),
        ("l.2.x", None),
        ("p.y", 5),
        ("a.b", Blocked(("a",), 1, "object")),
        ("o.b.c", Blocked(("o", "b"), 2, "object")),
        ("o.0", Blocked(("o",), CONFIG["o"], "list")),
        ("l.x", Blocked(("l",), CONFIG["l"], "object")),
    ],
)
def test_a_value_is_found_absent_or_out_of_reach(path: str, wanted: object) -> None:
    assert wanted == look_up(CONFIG, steps(path))


@pytest.mark.parametrize(
    ("read", "known", "wanted"),
    [
        ([], [], ["a", "o", "l", "p"]),
        (["a", "o.b"], ["l", "p"], ["o.q"]),
        (["a", "o.b"], ["l", "p", "q"], []),
        (["a", "o.b"], ["l", "p", "o.q"], []),
        (["a", "o"], ["l", "p"], []),
        (["o.q.s"], ["a", "l", "p"], ["o.b", "o.q.r"]),
        (["l.0.x", "p.y"], ["a", "o"], []),
    ],
)
def test_a_key_that_is_set_and_that_nobody_follows(
    read: list[str], known: list[str], wanted: list[str]
) -> None:
    assert wanted == list(unread(CONFIG, [steps(path) for path in read], known))
