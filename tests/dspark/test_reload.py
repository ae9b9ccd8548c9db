"""A rules file that changes while it is used: whole and good versions only."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

import dspark
from tests.support.configs import BASE

TEXT = """
table: t
facts: [architecture, markov]
default: R000
lanes: {qwen3-dspark: a lane}
rules:
  L001:
    name: taken
    when: {architecture: Qwen3DSparkModel, markov: [positive, zero]}
    lane: qwen3-dspark
    why: w
    tests:
      - hit: {architectures: [Qwen3DSparkModel], markov_rank: 1}
        lane: qwen3-dspark
      - miss: {architectures: [Qwen3DSparkModel]}
        is: R000
  R000:
    name: not-taken
    refuse: "{architecture} is not taken"
    why: w
    tests: [{hit: {}, says: is not taken}]
"""
RENAMED = TEXT.replace("name: taken", "name: taken-anew")
BROKEN = TEXT.replace("lane: qwen3-dspark\n    why", "lane: qwen3-dsprak\n    why")
FAILING = TEXT.replace("markov: [positive, zero]", "markov: PRESENT").replace(
    "[Qwen3DSparkModel]}\n        is: R000",
    "[Qwen3DSparkModel], markov_rank: -1}\n        is: R000",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "drafts.yaml"
    place.write_text(TEXT, encoding="utf-8")
    return place


def put(file: Path, text: str) -> None:
    """In one step, as an editor or a deployment does."""
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def name(live: dspark.ReloadingTable) -> str:
    return live.table.route(BASE).name


def test_a_new_version_is_taken_once_it_has_settled(file: Path) -> None:
    live = dspark.ReloadingTable(file, every=0)
    old = live.table

    put(file, RENAMED)

    # The first look sees that it changed, the second that nobody goes on changing it.
    assert ["taken", "taken-anew"] == [name(live), name(live)]
    assert old is not live.table
    assert dspark.compile_table(file).version == live.table.version
    assert live.problem is None


def test_a_file_that_is_still_being_written_is_left_alone(file: Path) -> None:
    live = dspark.ReloadingTable(file, every=0)

    seen = []
    for length in range(len(TEXT) // 2, len(RENAMED), 40):
        file.write_text(RENAMED[:length], encoding="utf-8")
        seen.append(name(live))
        assert live.problem is None
    file.write_text(RENAMED, encoding="utf-8")

    assert {"taken"} == set(seen)
    assert ["taken", "taken-anew"] == [name(live), name(live)]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (BROKEN, dspark.TableError, "error[D014 unknown-lane]"),
        (FAILING, dspark.FailedTests, "a miss of L001 wanted R000 and got L001 taken"),
        ("", dspark.TableError, "error[D021 empty-table]"),
    ],
)
def test_a_bad_version_is_not_taken_and_it_is_said_why(
    file: Path,
    text: str,
    kind: type[Exception],
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert TEXT != text
    live = dspark.ReloadingTable(file, every=0)
    good = live.table
    put(file, text)

    with caplog.at_level(logging.INFO, logger="dspark.reload"):
        for _ in range(5):
            assert good is live.table

    assert isinstance(live.problem, kind)
    assert words in str(live.problem)
    assert str(file) in str(live.problem)
    # Once for each version, not for each look.
    (record,) = caplog.records
    assert "WARNING" == record.levelname
    assert f"kept table {good.version}: `{file}` is refused: " in record.getMessage()
    assert words in record.getMessage()


def test_a_version_that_is_mended_is_taken(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = dspark.ReloadingTable(file, every=0)
    put(file, BROKEN)
    assert ["taken", "taken"] == [name(live), name(live)]
    assert live.problem is not None

    put(file, RENAMED)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="dspark.reload"):
        assert ["taken", "taken-anew"] == [name(live), name(live)]

    assert live.problem is None
    assert [f"took table {live.table.version} from `{file}`"] == [
        record.getMessage() for record in caplog.records
    ]


def test_a_file_that_goes_away_leaves_the_last_table(file: Path) -> None:
    live = dspark.ReloadingTable(file, every=0)
    file.unlink()

    assert ["taken", "taken"] == [name(live), name(live)]
    assert isinstance(live.problem, FileNotFoundError)

    file.write_text(TEXT, encoding="utf-8")
    assert ["taken", "taken"] == [name(live), name(live)]
    assert live.problem is None


def test_the_same_words_written_again_are_the_same_table(file: Path) -> None:
    live = dspark.ReloadingTable(file, every=0)
    table = live.table

    put(file, TEXT)

    assert table is live.table
    assert table is live.table


def test_the_file_is_looked_at_no_more_often_than_asked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = dspark.ReloadingTable(file, every=3600)
    put(file, RENAMED)
    looks: list[object] = []
    stat = os.stat
    monkeypatch.setattr(
        os, "stat", lambda *words, **more: looks.append(words) or stat(*words, **more)
    )

    assert {"taken"} == {name(live) for _ in range(100)}

    assert [] == looks


def test_reload_reads_at_once(file: Path) -> None:
    live = dspark.ReloadingTable(file, every=3600)
    put(file, RENAMED)

    assert live.reload() is True
    assert "taken-anew" == name(live)

    put(file, BROKEN)
    assert live.reload() is False
    assert "taken-anew" == name(live)
    assert "unknown-lane" in str(live.problem)


@pytest.mark.parametrize(
    ("text", "kind"), [(BROKEN, dspark.TableError), (FAILING, dspark.FailedTests)]
)
def test_there_is_no_last_good_version_of_a_bad_first_one(
    file: Path, text: str, kind: type[Exception]
) -> None:
    put(file, text)

    with pytest.raises(kind):
        dspark.ReloadingTable(file)


def test_tests_may_be_left_out(file: Path) -> None:
    put(file, FAILING)

    assert "taken" == name(dspark.ReloadingTable(file, tested=False))


def test_without_a_path_it_is_the_table_that_ships() -> None:
    assert dspark.compile_table().version == dspark.ReloadingTable().table.version


def test_no_thread_waits_for_another_and_none_sees_half_a_table(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = dspark.ReloadingTable(file, every=0)
    reading, go_on = threading.Event(), threading.Event()
    read = dspark.ReloadingTable._read

    def slow(self: dspark.ReloadingTable) -> dspark.Table:
        reading.set()
        assert go_on.wait(30)
        return read(self)

    monkeypatch.setattr(dspark.ReloadingTable, "_read", slow)
    put(file, RENAMED)
    assert "taken" == name(live)
    worker = threading.Thread(target=lambda: live.table)
    worker.start()
    assert reading.wait(30)

    # The worker holds the reading up; everybody else goes on with what there is.
    assert "taken" == name(live)
    go_on.set()
    worker.join()
    assert "taken-anew" == name(live)
