"""From token ids to text as it can be shown: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[list[int]], str]

# What decoders put where the bytes so far are not a whole character yet.
_INCOMPLETE = "\ufffd"


class TextStream:
    """The text of one request, released piece by piece.

    Text that could be the beginning of a stop string is held back until it is known to be or not
    to be, so no caller ever sees a part of one. `stopped` tells whether a stop string came.
    """

    def __init__(self, decode: Decode, stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = stops
        self._ids: list[int] = []
        # A token's text may depend on the one before it, so each is decoded behind its neighbour.
        self._context = 0
        self._shown = 0
        # Characters released of tokens that end in the middle of another character.
        self._early = 0
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that can be shown now that `token` has come."""
        self._ids.append(token)
        before = self._decode(self._ids[self._context : self._shown])
        now = self._decode(self._ids[self._context :])
        new = now[len(before) + self._early :].rstrip(_INCOMPLETE)
        if now.endswith(_INCOMPLETE):
            # What precedes the broken character is final, and a stop string in it must not wait.
            self._early += len(new)
        elif len(now) > len(before):
            self._context, self._shown, self._early = self._shown, len(self._ids), 0
        return self._release(new) if new else ""

    def finish(self) -> str:
        """What is left to show once no more tokens come."""
        if self.stopped:
            return ""
        before = self._decode(self._ids[self._context : self._shown])
        rest = self._decode(self._ids[self._context :])[len(before) + self._early :]
        self._shown = len(self._ids)
        released = self._release(rest)
        # Nothing is held any more if this completed a stop string.
        held, self._held = self._held, ""
        return released + held

    def _release(self, text: str) -> str:
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown


def _overlap(text: str, stop: str) -> int:
    """How much of the end of `text` is the beginning of `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
