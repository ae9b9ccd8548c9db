"""What `dspark.runtime` offers, and what it costs to ask for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dspark.runtime


def test_every_public_name_is_there() -> None:
    for name in dspark.runtime.__all__:
        assert name == getattr(dspark.runtime, name).__name__
        assert name in dir(dspark.runtime)
    assert sorted(dspark.runtime.__all__) == dspark.runtime.__all__
    with pytest.raises(AttributeError, match="has no attribute `Motor`"):
        _ = dspark.runtime.Motor  # type: ignore[attr-defined]


def test_only_a_backend_imports_torch() -> None:
    code = (
        "import sys, dspark.runtime as r, dspark.runtime.models.block_draft;"
        "[getattr(r, name) for name in r.__all__];"
        "import dspark.runtime.backends.reference;"
        "sys.exit('torch' in sys.modules)"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
