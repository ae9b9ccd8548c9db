"""`dspark bench`, through the command line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dspark.runtime import weight_files
from dspark.runtime.cli import plot
from dspark.runtime.comparison import compare
from dspark.runtime.load import open_engine
from dspark.runtime.params import SamplingParams
from tests.runtime.cli_answers import Verb, validate
from tests.support.real_pairs import write_draft, write_target

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    target, draft = write_target(tmp_path / "target"), write_draft(tmp_path / "draft")
    return Verb("bench", target, draft, capsys)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    lines = [f'{{"prompt": "w{number} w2", "id": {number}}}\n' for number in range(3)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return str(tmp_path / "prompts.jsonl")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a weight file was mapped")

    monkeypatch.setattr(weight_files, "_mapped", read)


def test_both_ways_are_counted(verb: Verb, prompts: str) -> None:
    said = verb.say("--prompts", prompts, "--max-tokens", "12", "--json", "-k", "3")
    document = said.document
    validate("bench", document)
    drafted, plain = document["with_draft"], document["without_draft"]

    assert (0, "") == (said.code, said.err)
    # A text may end early by itself, but then it does so both ways.
    assert 3 <= drafted["tokens"] == plain["tokens"] <= 36
    assert (3, 3) == (document["prompts"], document["same"])
    assert 3 == len(drafted["acceptance_per_position"])
    assert [] == plain["acceptance_per_position"]
    assert plain["tokens"] - 3 == plain["rounds"] >= drafted["rounds"]
    for side in (drafted, plain):
        assert side["tokens"] / side["seconds"] == side["tokens_per_s"]
    assert drafted["tokens_per_s"] / plain["tokens_per_s"] == document["speedup"]


def test_the_schema_refuses_what_is_not_printed(verb: Verb, prompts: str) -> None:
    document = verb.say("--prompts", prompts, "--max-tokens", "2", "--json").document
    for part in (document, document["with_draft"]):
        for key in list(part):
            value = part.pop(key)
            with pytest.raises(Exception, match="is a required property"):
                validate("bench", document)
            part[key] = value
    with pytest.raises(Exception, match="surprise"):
        validate("bench", document | {"surprise": 1})


def test_the_table_has_a_row_for_each_way(verb: Verb, prompts: str) -> None:
    said = verb.say("--prompts", prompts, "--max-tokens", "12", "--limit", "2")
    head, without, with_draft, speed, same, accepted = said.out.splitlines()

    assert ["tokens", "seconds", "tokens/s", "rounds", "tokens/round"] == head.split()
    assert without.split()[:2] == ["without", "draft"]
    assert with_draft.split()[:2] == ["with", "draft"]
    assert without.split()[2] == with_draft.split()[2]
    assert "times as fast (float32 on cpu)" in speed
    assert "the same tokens both ways for 2 of 2 prompts" == same
    assert 4 == len(accepted.removeprefix("accepted by position: ").split())


def test_a_picture_is_drawn(verb: Verb, prompts: str, tmp_path: Path) -> None:
    picture = tmp_path / "out.png"

    said = verb.say("--prompts", prompts, "--max-tokens", "4", "--plot", str(picture))

    assert (0, "") == (said.code, said.err)
    assert picture.read_bytes().startswith(PNG)
    assert 5_000 < picture.stat().st_size


@pytest.mark.usefixtures("unread")
def test_a_picture_needs_matplotlib(
    verb: Verb, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        plot, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name)
    )

    said = verb.say("--prompts", prompts, "--plot", "out.png")

    assert (2, "") == (said.code, said.out)
    assert (
        "--plot needs the package `matplotlib`: install it with `pip install 'dspark[plot]'`"
        in (said.err)
    )


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("file", "text"),
    [("out.svg", "`out.svg` does not end in .png"), ("no/where.png", "`no/where.png` cannot be")],
)
def test_a_picture_has_a_place_before_the_run(
    file: str, text: str, verb: Verb, prompts: str
) -> None:
    said = verb.say("--prompts", prompts, "--plot", file)

    assert 2 == said.code
    assert text in said.err


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prompt": "w1"}\n{"prompt": ""}\n', "line 2 of `{file}` is not an object"),
        ('{"prompt": 3}', "line 1 of `{file}` is not an object"),
        ('\n\n["w1"]', "line 3 of `{file}` is not an object"),
        ('{"prompt": "w1"', "line 1 of `{file}` is not an object"),
        ("\n \n", "`{file}` has no prompts"),
        ('{"prompt": "' + "w1 " * 300 + '"}', "the prompt has 300 tokens, and 256 is the most"),
    ],
)
def test_a_file_of_prompts_is_read_strictly(
    text: str, words: str, verb: Verb, tmp_path: Path
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(text, encoding="utf-8")

    said = verb.say("--prompts", str(file))

    assert (2, "") == (said.code, said.out)
    assert words.format(file=file) in said.err


@pytest.mark.usefixtures("unread")
def test_one_of_the_two_ways_must_draft(verb: Verb, prompts: str) -> None:
    assert "`0` is not a whole number of 1 or more" in verb.misuse("--prompts", prompts, "-k", "0")


def test_every_prompt_is_decoded_both_ways_and_told(tmp_path: Path) -> None:
    target, draft = write_target(tmp_path / "target"), write_draft(tmp_path / "draft")
    loaded = open_engine(target, draft, max_batch=1)
    done: list[int] = []
    params = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)

    found = compare(loaded.engine, [[1], [2, 3]], params, done=lambda: done.append(1))

    assert (2, 2, 2) == (found.prompts, found.same, len(done))
    assert (10, 10) == (found.with_draft.tokens, found.without_draft.tokens)
