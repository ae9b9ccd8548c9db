from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.errors import Unreadable
from dspark.strict_json import DEEPEST_NESTING, LARGEST_CONFIG, parse_config


def refusal(data: bytes) -> tuple[str, dict[str, object]]:
    with pytest.raises(Unreadable) as caught:
        parse_config(data)
    return caught.value.rule_name, caught.value.values


def at(line: int, column: int, **values: object) -> dict[str, object]:
    return {"line": line, "column": column, **values}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        (' \r\n\t{"a": 1}\n', {"a": 1}),
        ('{"a": 9223372036854775807, "b": -9223372036854775808}', {"a": 2**63 - 1, "b": -(2**63)}),
        ('{"a": 1e30, "b": 151936.0, "c": 1E5}', {"a": 1e30, "b": 151936.0, "c": 1e5}),
        ('{"a": -0, "b": 1e-999}', {"a": 0, "b": 0.0}),
        ('{"a": 0.' + "1" * 5000 + "}", {"a": 0.1111111111111111}),
        ('{"a": "\\ud83d\\ude00", "\\u0062": "\\\\ud800"}', {"a": "\U0001f600", "b": "\\ud800"}),
        ('{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}', {"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}),
        ('{"a": "NaN", "\x7f": "[[{{", "": null}', {"a": "NaN", "\x7f": "[[{{", "": None}),
        ('{"a": [' + "[]," * 99 + "[]]}", {"a": [[]] * 100}),
    ],
)
def test_meaning_of_good_files(text: str, expected: object) -> None:
    assert expected == parse_config(text.encode())


@pytest.mark.parametrize("literal", ["151936.0", "1e30", "7"])
def test_numbers_keep_the_kind_they_are_written_in(literal: str) -> None:
    value = parse_config(b'{"a": %s}' % literal.encode())["a"]
    assert (int if literal == "7" else float) is type(value)


@pytest.mark.parametrize(
    ("data", "rule", "values"),
    [
        (b"", "config-empty", {}),
        (b" \r\n\t \n", "config-empty", {}),
        (b"[]", "config-not-object", {"found": "an array"}),
        (b'"{}"', "config-not-object", {"found": "a string"}),
        (b"7", "config-not-object", {"found": "a number"}),
        (b"7.5", "config-not-object", {"found": "a number"}),
        (b" true\n", "config-not-object", {"found": "true"}),
        (b"false", "config-not-object", {"found": "false"}),
        (b"null", "config-not-object", {"found": "null"}),
        ("{}".encode("utf-16"), "config-not-utf8", {"offset": 0, "byte": "0xff"}),
        ("{}".encode("utf-16-le"), "config-not-utf8", {"offset": 1, "byte": "0x00"}),
        ("{}".encode("utf-16-be"), "config-not-utf8", {"offset": 0, "byte": "0x00"}),
        ("{}".encode("utf-32"), "config-not-utf8", {"offset": 0, "byte": "0xff"}),
        ("{}".encode("utf-32-le"), "config-not-utf8", {"offset": 1, "byte": "0x00"}),
        ("{}".encode("utf-32-be"), "config-not-utf8", {"offset": 0, "byte": "0x00"}),
        ('{"a": "é"}'.encode("latin-1"), "config-not-utf8", {"offset": 7, "byte": "0xe9"}),
        (b'{"a": "\xed\xa0\x80"}', "config-not-utf8", {"offset": 7, "byte": "0xed"}),
        (b"\xef\xbb\xbf{}", "config-has-bom", {}),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1243\n",
            "config-is-lfs-pointer",
            {},
        ),
        (b'{"a": NaN}', "config-not-finite", at(1, 7, literal="NaN")),
        (b'{"a":\n[Infinity]}', "config-not-finite", at(2, 2, literal="Infinity")),
        (b'{"a": -Infinity}', "config-not-finite", at(1, 7, literal="-Infinity")),
        (b'{"a": 1,\n  "a": 1}', "config-duplicate-key", at(2, 3, key="a")),
        (b'{"a": 1, "\\u0061": 2}', "config-duplicate-key", at(1, 10, key="a")),
        (b'{"a": [{"b": {}, "c": 0, "b": 1}]}', "config-duplicate-key", at(1, 26, key="b")),
        (b'{"a": "\\ud83d\\ude00", "\\u0061": 2}', "config-duplicate-key", at(1, 23, key="a")),
    ],
)
def test_each_broken_file_has_its_own_rule(
    data: bytes, rule: str, values: dict[str, object]
) -> None:
    assert (rule, values) == refusal(data)


@pytest.mark.parametrize(
    ("text", "line", "column", "detail"),
    [
        ('{"a": 7,}', 1, 8, "a trailing comma"),
        ('{"a": [1, 2,\n]}', 1, 12, "a trailing comma"),
        ("{'a': 7}", 1, 2, "expected a key in double quotes, and single quotes are not JSON"),
        ("{\"a\": 'b'}", 1, 7, "expected a value, and single quotes are not JSON"),
        ('{\n  "a": 1 // b\n}', 2, 10, "expected `,` or `}`, and comments are not JSON"),
        ("# b\n{}", 1, 1, "expected a value, and comments are not JSON"),
        ('{"a": 1', 1, 8, "expected `,` or `}`, and the file ends"),
        ('{"a"', 1, 5, "expected `:`, and the file ends"),
        ('{"a" 1}', 1, 6, "expected `:`"),
        ('{"a": [1 2]}', 1, 10, "expected `,` or `]`"),
        ('{"a": [}', 1, 8, "expected a value"),
        ("{,}", 1, 2, "expected a key in double quotes"),
        ("{1: 2}", 1, 2, "expected a key in double quotes"),
        ("{}\n{}", 2, 1, "expected the end of the file"),
        ('{"a": 01}', 1, 8, "expected `,` or `}`"),
        ('{"a": +1}', 1, 7, "expected a value"),
        ('{"a": .5}', 1, 7, "expected a value"),
        ('{"a": 1.}', 1, 8, "expected `,` or `}`"),
        ('{"a": True}', 1, 7, "expected a value"),
        ('{"a": -NaN}', 1, 7, "expected a value"),
        ('{"a": "b', 1, 7, "a string without an end"),
        ('{"a": "b\nc"}', 1, 9, "a control character in a string"),
        ('{"a": "\x00"}', 1, 8, "a control character in a string"),
        ('{"a": "b\\x"}', 1, 9, "an invalid escape in a string"),
        ('{"a": "b\\u12"}', 1, 9, "an invalid escape in a string"),
        ('{"a": "\\ud800"}', 1, 7, "half of a surrogate pair in a string"),
        ('{"\\uDFFF": 1}', 1, 2, "half of a surrogate pair in a string"),
        ('{"a": "\\ud83d \\ude00"}', 1, 7, "half of a surrogate pair in a string"),
        ('{"日本": 1}\u00a0', 1, 10, "expected the end of the file"),
        ('{"日本": "é", x}', 1, 13, "expected a key in double quotes"),
        ('{"a": 1}\ufeff', 1, 9, "expected the end of the file"),
    ],
)
def test_syntax_faults_say_where_and_what(text: str, line: int, column: int, detail: str) -> None:
    assert ("config-invalid-json", at(line, column, detail=detail)) == refusal(text.encode())


@pytest.mark.parametrize(
    ("literal", "shown"),
    [
        ("9223372036854775808", "9223372036854775808"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("9" * 5000, "999999999999... (5000 characters)"),
        ("-" + "9" * 5000, "-99999999999... (5001 characters)"),
        ("1e999", "1e999"),
        ("-1E+999", "-1E+999"),
        ("1" * 400 + ".0", "111111111111... (402 characters)"),
    ],
)
def test_numbers_out_of_range(literal: str, shown: str) -> None:
    data = f'{{"x": 1,\n "vocab_size": [0, {literal}]}}'.encode()
    expected = at(2, 20, key="vocab_size", literal=shown)
    assert ("number-out-of-range", expected) == refusal(data)


def test_numbers_out_of_range_without_a_key() -> None:
    expected = at(1, 1, key="(top level)", literal="1e999")
    assert ("number-out-of-range", expected) == refusal(b"1e999")


def test_the_first_fault_in_the_file_is_the_one_that_is_told() -> None:
    faults = ['"a": 1', '"b": NaN', '"c": 1e999', '"d": }']
    rules = ["config-duplicate-key", "config-not-finite", "number-out-of-range"]
    for rule in rules:
        assert rule == refusal(('{"a": 0, ' + ", ".join(faults) + "}").encode())[0]
        faults.pop(0)
    assert "config-invalid-json" == refusal(('{"a": 0, ' + ", ".join(faults) + "}").encode())[0]


def test_size_limit_is_exact() -> None:
    largest = b"{}".ljust(LARGEST_CONFIG)
    assert {} == parse_config(largest)
    assert ("config-too-large", {"limit": LARGEST_CONFIG}) == refusal(largest + b" ")


def nested(depth: int) -> bytes:
    """Objects and arrays in turn, `depth` of them."""
    opening = "".join('{"a":' if level % 2 == 0 else "[" for level in range(depth - 1))
    closing = "".join("}" if level % 2 == 0 else "]" for level in reversed(range(depth - 1)))
    return (opening + ("{}" if depth % 2 else "[]") + closing).encode()


@pytest.fixture(params=[400, 100_000])
def recursion_limit(request: pytest.FixtureRequest) -> Iterator[int]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(request.param)
    yield request.param
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("recursion_limit")
def test_depth_limit_is_ours_and_exact() -> None:
    assert 64 == DEEPEST_NESTING
    assert json.loads(nested(64)) == parse_config(nested(64))
    column = nested(65).index(b"{}") + 1
    assert ("config-too-deep", at(1, column, limit=64)) == refusal(nested(65))


@pytest.mark.usefixtures("recursion_limit")
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_no_depth_reaches_the_interpreters_stack(opening: bytes) -> None:
    data = opening * ((LARGEST_CONFIG - 1) // len(opening))
    column = 64 * len(opening) + 1
    assert ("config-too-deep", at(1, column, limit=64)) == refusal(data)


def test_ten_million_brackets_are_too_large_before_they_are_too_deep() -> None:
    assert "config-too-large" == refusal(b"[" * 10_000_000)[0]


def test_brackets_in_strings_are_not_levels() -> None:
    text = json.dumps({"a": "[" * 100 + '\\"' + "{" * 100, "b": [[]] * 70})
    assert json.loads(text) == parse_config(text.encode())


def test_breadth_is_not_depth() -> None:
    text = b'{"a": [' + b"[]," * 20_000 + b"[]]}"
    assert 20_001 == len(parse_config(text)["a"])  # type: ignore[arg-type]


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=30,
)
documents = st.dictionaries(st.text(), values)


@given(documents, st.booleans(), st.sampled_from([None, 2]))
def test_valid_documents_mean_what_the_standard_library_says(
    document: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    assert json.loads(text) == parse_config(text.encode())


def outcome(data: bytes) -> str:
    """The rule that refuses `data`, or nothing if it means an object."""
    try:
        assert type(parse_config(data)) is dict
    except Unreadable as problem:
        return problem.rule_name
    return ""


@given(st.binary() | st.text().map(str.encode))
def test_arbitrary_bytes_give_a_mapping_or_a_named_refusal(data: bytes) -> None:
    assert outcome(data) in {
        "",
        "config-empty",
        "config-has-bom",
        "config-invalid-json",
        "config-is-lfs-pointer",
        "config-not-finite",
        "config-not-object",
        "config-not-utf8",
        "number-out-of-range",
    }


FRAGMENTS = ["{", "}", "[", "]", ",", ":", '"', "\\", "a", "\\u0061", "\\ud800", "\\udc00", "1"]
FRAGMENTS += ["0", "-", ".", "e", "9" * 19, "1e400", "NaN", "Infinity", "null", "true", " ", "\n"]
FRAGMENTS += [
    "\x01",
    "é",
    "/",
    "'",
    '"a":',
    '{"a":1}',
    "[]",
    '"b":2',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), st.booleans())
def test_validity_is_the_standard_librarys_except_where_a_rule_says_so(
    text: str, as_value: bool
) -> None:
    text = f'{{"k":{text}}}' if as_value else text
    found = outcome(text.encode())
    duplicates: list[bool] = []

    def pairs_as_array(pairs: list[tuple[str, object]]) -> list[object]:
        duplicates.append(len(dict(pairs)) < len(pairs))
        return ["object", *(part for pair in pairs for part in pair)]

    try:
        value = json.loads(text, object_pairs_hook=pairs_as_array)
    except json.JSONDecodeError:
        assert found  # which one, the fault that comes first decides
        return
    allowed = {"config-duplicate-key"} if any(duplicates) else set()
    for scalar in flat(value):
        allowed |= naive_faults(scalar)
    if not (isinstance(value, list) and value[:1] == ["object"]):
        allowed.add("config-not-object")
    assert found in (allowed or {""})


def flat(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for item in value:
            yield from flat(item)
    else:
        yield value


def naive_faults(scalar: object) -> set[str]:
    if isinstance(scalar, float) and not math.isfinite(scalar):
        return {"config-not-finite", "number-out-of-range"}
    if isinstance(scalar, int) and not -(2**63) <= scalar < 2**63:
        return {"number-out-of-range"}
    if isinstance(scalar, str) and any("\ud800" <= character <= "\udfff" for character in scalar):
        return {"config-invalid-json"}
    return set()
