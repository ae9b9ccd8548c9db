"""`dspark graph`: the decision graph in each format."""

from __future__ import annotations

import pytest

from dspark.cli import main


@pytest.mark.parametrize("form", ["text", "mermaid", "dot", "json"])
def test_every_graph_format_names_every_deciding_rule(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["graph", "--format", form])

    output = capsys.readouterr().out
    for rule_id in ("L001", "R000", "R033", "E101"):
        assert rule_id in output
