"""`dspark generate`, through the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dspark.output import emit
from dspark.runtime import weight_files
from dspark.runtime.cli import generate, options
from dspark.runtime.request import Request
from tests.runtime.cli_answers import SCRIPT, Verb, in_a_process, validate
from tests.support.pairs import TINY
from tests.support.real_pairs import save, write_draft, write_json, write_target

DRAFTS = ["dspark", "dflash", "dspark-speculators"]
PROMPT = "def read(path):\n    with open("


@pytest.fixture
def tiny(repository: Path) -> Path:
    return repository / "examples" / "tiny"


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verb:
    target, draft = write_target(tmp_path / "target"), write_draft(tmp_path / "draft")
    return Verb("generate", target, draft, capsys)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a weight file was mapped")

    monkeypatch.setattr(weight_files, "_mapped", read)


# --------------------------------------------------------------------------------- what it prints


def test_the_text_is_the_same_with_and_without_every_draft(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for draft in (None, *DRAFTS):
        pair = Verb("generate", tiny / "target", draft and tiny / draft, capsys)
        said[draft] = pair.say("--prompt", PROMPT, "--max-tokens", "40", "--json")
    alone = said.pop(None).document

    assert 40 == alone["stats"]["tokens"] == len(alone["token_ids"])
    assert alone["decision"] is None
    assert [] == alone["stats"]["acceptance_per_position"]
    for draft, answer in said.items():
        document = answer.document
        validate("generate", document)
        assert 0 == answer.code
        assert (alone["text"], alone["token_ids"], "length") == (
            document["text"],
            document["token_ids"],
            document["finish_reason"],
        )
        assert document["stats"]["rounds"] < 39, draft
        assert 7 == len(document["stats"]["acceptance_per_position"])
        assert str(tiny / str(draft)) == document["decision"]["source"]


def test_the_schema_refuses_what_is_not_printed(verb: Verb) -> None:
    document = verb.say("--prompt", "w1", "--max-tokens", "3", "--json").document
    validate("generate", document)
    for part in (document, document["stats"]):
        for key in list(part):
            value = part.pop(key)
            with pytest.raises(Exception, match="is a required property"):
                validate("generate", document)
            part[key] = value
    with pytest.raises(Exception, match="surprise"):
        validate("generate", document | {"surprise": 1})


def test_text_and_statistics_go_to_their_own_streams(verb: Verb) -> None:
    prompt = ("--prompt", "w1 w2 w3", "--max-tokens", "20")
    document = verb.say(*prompt, "--json").document

    plain = verb.say(*prompt)
    told = verb.say(*prompt, "--stats", "-k", "2")

    assert (document["text"] + "\n", "") == (plain.out, plain.err)
    assert plain.out == told.out
    lines = told.err.splitlines()
    assert lines[0].startswith("20 tokens in ")
    assert "ended by: length" == lines[1]
    assert lines[2].endswith("(float32 on cpu)")
    assert " tokens a round" in lines[3]
    assert 2 == len(lines[4].removeprefix("accepted by position: ").split())
    assert lines[5].startswith("draft ")


def test_text_is_shown_as_it_comes(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[str] = []
    monkeypatch.setattr(generate, "emit", pieces.append)

    prompt = ("--prompt", "w1 w2 w3", "--max-tokens", "20", "--no-draft")
    text = verb.say(*prompt, "--json").document["text"]
    assert [] == pieces
    verb.say(*prompt)

    assert text + "\n" == "".join(pieces)
    assert 10 < len([piece for piece in pieces[:-1] if piece])


def test_what_is_shown_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    stream = SimpleNamespace(write=done.append, flush=lambda: done.append("flushed"))
    monkeypatch.setattr(sys, "stdout", stream)

    emit("w1")

    assert ["w1", "flushed"] == done


def test_a_seed_fixes_a_sampled_text(verb: Verb) -> None:
    def text(*more: str) -> str:
        return verb.say("--prompt", "w1", "--temperature", "1.5", "--max-tokens", "12", *more).out

    same = [text("--seed", "7") for _ in range(2)]
    greedy = text("--seed", "7", "--top-k", "1")

    assert same[0] == same[1]
    assert len({text("--seed", str(seed)) for seed in range(4)}) > 1
    assert verb.say("--prompt", "w1", "--max-tokens", "12").out == greedy
    assert greedy == text("--seed", "7", "--top-p", "0.0001") == text("--min-p", "1")


def test_no_draft_leaves_it_out(verb: Verb, tmp_path: Path) -> None:
    write_json(tmp_path / "draft" / "config.json", {"architectures": ["Qwen3Eagle3Model"]})

    refused = verb.say("--prompt", "w1", "--max-tokens", "3")
    left_out = verb.say("--prompt", "w1", "--max-tokens", "3", "--no-draft", "--json")

    assert (3, 0) == (refused.code, left_out.code)
    assert left_out.document["decision"] is None


def test_a_prompt_may_come_from_a_file_or_from_standard_input(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = verb.say("--prompt", "w5 w6", "--max-tokens", "9").out
    (tmp_path / "prompt.txt").write_text("w5 w6", encoding="utf-8")

    from_file = verb.say("--prompt-file", str(tmp_path / "prompt.txt"), "--max-tokens", "9").out
    for words in (("-",), ("--prompt-file", "-")):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"w5 w6")))
        assert expected == from_file == verb.say(*words, "--max-tokens", "9").out


def test_warnings_are_told_beside_the_text(verb: Verb, tmp_path: Path) -> None:
    write_json(tmp_path / "draft" / "config.json", TINY | {"mystery": 1})

    said = verb.say("--prompt", "w1", "--max-tokens", "3")

    assert 0 == said.code
    assert "`mystery` is not read by this lane  [W004 unread-key]" in said.err


# -------------------------------------------------------------------------------- how it is refused


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--prompt", ""], 2, "dspark: the prompt is empty"),
        (["--prompt", "  "], 2, "dspark: the prompt has no tokens"),
        (["--prompt", "\udcff"], 2, "dspark: the prompt is not UTF-8"),
        (["--prompt", "w1 " * 300], 2, "dspark: the prompt has 300 tokens, and 256 is the most"),
        (["--prompt", "w1", "-k", "5"], 2, "dspark: `drafts` must be from 0 to 4"),
        (["--prompt", "w1", "--temperature", "-1"], 2, "dspark: `temperature` must be"),
        (["--prompt", "w1", "--top-p", "2"], 2, "dspark: `top_p` must be"),
        (["--prompt-file", "nowhere.txt"], 2, "dspark: cannot read `nowhere.txt`: no such file"),
        (["--prompt-file", "."], 2, "dspark: cannot read `.`: is a directory"),
        (["--prompt", "w1", "--rules", "nowhere.yaml"], 2, "dspark: cannot read the rules file"),
        (["--prompt", "w1", "--max-seq", "257"], 3, "B002 max-seq-too-long"),
        (["--prompt", "w1", "--memory", "200kB"], 3, "B001 over-budget"),
        (["--prompt", "w1", "--device", "cuda"], 3, "B003 device-unavailable"),
    ],
)
def test_what_cannot_be_done_is_said_and_has_a_code(
    words: list[str], code: int, text: str, verb: Verb
) -> None:
    said = verb.say(*words)

    assert (code, "") == (said.code, said.out)
    assert text in said.err


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "one of the arguments --prompt --prompt-file - is required"),
        (["--prompt", "a", "-"], "not allowed with argument --prompt"),
        (["--prompt", "a", "-k", "-1"], "`-1` is not a whole number"),
        (["--prompt", "a", "--max-tokens", "0"], "`0` is not a whole number of 1 or more"),
        (["--prompt", "a", "--memory", "much"], "`much`: a size is a number of bytes"),
        (["--prompt", "a", "--dtype", "float16"], "invalid choice: 'float16'"),
    ],
)
def test_options_that_mean_nothing_are_usage_errors(
    words: list[str], text: str, verb: Verb
) -> None:
    assert text in verb.misuse(*words)


@pytest.mark.usefixtures("unread")
def test_a_prompt_file_that_is_no_text_is_named(verb: Verb, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"w1 \xff\xfe")

    assert f"dspark: `{file}` is not UTF-8: byte 0xff at offset 3\n" == (
        verb.say("--prompt-file", str(file)).err
    )


@pytest.mark.usefixtures("unread")
def test_a_refusal_is_json_where_json_is_asked_for(verb: Verb, tmp_path: Path) -> None:
    write_json(tmp_path / "draft" / "config.json", {"architectures": ["Qwen3Eagle3Model"]})

    said = verb.say("--prompt", "w1", "--json")

    assert (3, "") == (said.code, said.err)
    validate("decision", said.document)
    assert "R028" == said.document["decision"]["rule_id"]


@pytest.mark.usefixtures("unread")
def test_an_input_that_cannot_be_read_has_its_own_code(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "draft" / "config.json").write_text("{", encoding="utf-8")

    said = verb.say("--prompt", "w1")

    assert 4 == said.code
    assert "E002" in said.err


@pytest.mark.usefixtures("unread")
def test_a_table_that_does_not_compile_has_its_own_code(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("table: t\n", encoding="utf-8")

    assert 5 == verb.say("--prompt", "w1", "--rules", str(tmp_path / "t.yaml")).code


def test_a_weight_that_is_no_number_is_refused(verb: Verb, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "draft" / "model.safetensors")
    tensors["fc.weight"][0, 0] = torch.nan
    save(tmp_path / "draft", TINY, tensors)

    said = verb.say("--prompt", "w1")

    assert 3 == said.code
    assert "the tensor `fc.weight` in `model.safetensors`" in said.err


def test_logits_that_are_no_numbers_are_a_failure(
    verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dspark.runtime.models.qwen3 import Qwen3Target

    real = Qwen3Target.logits
    monkeypatch.setattr(Qwen3Target, "logits", lambda *a: real(*a) * torch.nan)

    said = verb.say("--prompt", "w1")

    assert 1 == said.code
    assert "dspark: the target's logits are not finite numbers" in said.err


def test_ctrl_c_ends_it(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Request, "event", stop)

    assert 130 == verb.say("--prompt", "w1").code


# ------------------------------------------------------------------------------- in its own process


def test_the_first_token_comes_soon(tiny: Path) -> None:
    run, seconds = in_a_process(
        *("generate", "--target", str(tiny / "target"), "--draft", str(tiny / "dspark")),
        *("--max-tokens", "1", "--json", "-"),
        stdin=PROMPT.encode(),
    )

    assert 0 == run.returncode, run.stderr
    assert 1 == json.loads(run.stdout)["stats"]["tokens"]
    # Of the processor, not by the clock: other work must not turn this red.
    assert seconds < 4


def test_a_reader_that_goes_away_is_no_error(tiny: Path) -> None:
    process = subprocess.Popen(
        [SCRIPT, "generate", "--target", tiny / "target", "--prompt", PROMPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()

    assert (0, b"") == (process.wait(), errors)


def test_help_imports_no_torch() -> None:
    code = (
        "import sys\nfrom dspark.cli import main\n"
        "try:\n    main(['generate', '--help'])\nexcept SystemExit as end:\n"
        "    sys.exit(end.code or 'torch' in sys.modules or 'numpy' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert 0 == run.returncode, run.stderr
    assert "--prompt-file" in run.stdout


@pytest.mark.parametrize(
    ("weights", "asked", "expected"), [(10, None, 1), (2**27, None, 0), (10, 3, 3)]
)
def test_tiny_models_get_one_thread(
    weights: int, asked: Any, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", made.append)

    options._use_threads(asked, weights)

    assert [expected] * bool(expected) == made


def test_loading_is_shown_on_a_terminal_only(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = verb.say("--prompt", "w1", "--max-tokens", "2")

    assert 0 == shown.code
    assert "loading the" in shown.err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert "" == verb.say("--prompt", "w1", "--max-tokens", "2").err
