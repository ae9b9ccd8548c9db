"""Who is told of the decisions that this process makes.

The callbacks are one tuple that is replaced, never changed: `announce` reads it without a lock, and
where nobody listens it is a look at an empty tuple.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from dspark.errors import Refused

if TYPE_CHECKING:
    from dspark.decision import Decision

Callback = Callable[["Decision"], object]
P = ParamSpec("P")
T = TypeVar("T")


class _Subscription:
    """One call of `on_decision`: the same callback may be subscribed twice."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback = callback


_subscriptions: tuple[_Subscription, ...] = ()
_changing = threading.Lock()


def on_decision(callback: Callback) -> Callable[[], None]:
    """Has `callback(decision)` called for every checkpoint decided; returns what ends that.

    It is called once for each call of `dspark.route`, `dspark.require_lane`, `dspark.plan` and
    `dspark.hand_off`, in the thread that decides and before the caller gets the answer. What it
    raises, the caller gets: a decision that could not be logged is not passed over in silence.
    Callbacks are called in the order in which they came. Calling the returned function twice does
    nothing more.
    """
    global _subscriptions  # noqa: PLW0603 - one process, one list
    subscription = _Subscription(callback)
    with _changing:
        _subscriptions = (*_subscriptions, subscription)

    def unsubscribe() -> None:
        global _subscriptions  # noqa: PLW0603
        with _changing:
            _subscriptions = tuple(one for one in _subscriptions if one is not subscription)

    return unsubscribe


def announce(decision: Decision) -> None:
    """Calls every callback with `decision`."""
    for subscription in _subscriptions:
        subscription.callback(decision)


def announcing_refusals(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, which tells of each `Refused` that it raises."""

    @wraps(function)
    def told(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except Refused as refusal:
            announce(refusal.decision)
            raise

    return told
