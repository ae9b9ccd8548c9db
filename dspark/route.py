"""`python -m dspark.route CHECKPOINT...`: the router's command line under its own name."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from dspark.compiled import Table
from dspark.decision import Decision
from dspark.routing import route


class _RouteModule(ModuleType):
    """Lets `dspark.route(source)` work even after someone has imported this module.

    Importing a submodule binds its name in the package, over the function of the same name.
    """

    def __call__(self, source: str | os.PathLike[str], *, table: Table | None = None) -> Decision:
        return route(source, table=table)


sys.modules[__name__].__class__ = _RouteModule

if __name__ == "__main__":
    from dspark.cli import main

    sys.exit(main(["route", *sys.argv[1:]]))
