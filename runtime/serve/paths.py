"""Where a request goes, seen from the service, which may be mounted under a prefix."""

from __future__ import annotations

from starlette.types import Scope

PROBES = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})
"""What probes and scrapers ask for, every few seconds; nothing in it comes from a caller."""


def path_below(scope: Scope) -> str:
    """The path without the prefix that the service is mounted under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def route_of(scope: Scope) -> str:
    """The pattern of the route that took the request; `other` for none, so that labels stay few."""
    path: str = getattr(scope.get("route"), "path", "other")
    return path
