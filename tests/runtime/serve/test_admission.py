from __future__ import annotations

import pytest

from dspark.runtime.serve import admission
from dspark.runtime.serve.admission import Admission
from dspark.runtime.serve.errors import ApiError


def test_places_are_given_back_whatever_happens() -> None:
    places = Admission(batch=2, queue=1)
    with places.admitted(2), places.admitted(1):
        assert 3 == places.under_way
        with pytest.raises(ApiError) as full, places.admitted(1):
            pass
        assert (429, "queue_full") == (full.value.status_code, full.value.code)
        assert 3 == places.under_way
    with pytest.raises(RuntimeError), places.admitted(3):
        raise RuntimeError
    assert 0 == places.under_way


@pytest.mark.parametrize(
    ("seconds", "batch", "expected"),
    [([], 4, 1), ([0.1], 1, 1), ([10.0, 20.0], 4, 4), ([10.0], 1, 10), ([9999.0], 1, 60)],
)
def test_how_long_to_wait_is_what_places_took_lately(
    seconds: list[float], batch: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(admission, "monotonic", lambda: clock[0])
    places = Admission(batch=batch, queue=0)
    for took in seconds:
        with places.admitted(1):
            clock[0] += took

    assert expected == places.retry_after()
