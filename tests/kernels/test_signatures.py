"""What a kernel takes is read from its source, and is what the compiler makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.kernels.errors import SourceError
from dspark.kernels.extents import evaluate, names_in, parse_expression
from dspark.kernels.host.build import build
from dspark.kernels.signatures import FOLDER, SIZES, kernels_in, read_signatures

FILE = Path("some.cu")
KINDS = {"f32": "f"}


def test_the_simulator_reads_the_same(compiled: Path) -> None:
    files = sorted(FOLDER.glob("*.cu"))
    assert files
    declared: dict[str, tuple[tuple[str, int], ...]] = {}
    for file in files:
        for name, parameters in build(file, compiled).kernels.items():
            declared[name] = tuple((each.kind, each.size) for each in parameters)

    read = {
        name: tuple(
            ("p", 8) if each.shape is not None else (KINDS.get(each.dtype, "i"), SIZES[each.dtype])
            for each in signature.parameters
        )
        for name, signature in kernels_in().items()
    }
    assert declared == read


def test_a_declaration() -> None:
    (found,) = read_signatures(
        """
        // A comment about __global__ functions (and a parenthesis.
        extern "C" __global__ void __launch_bounds__(256, 2) thing(
            const bf16* __restrict__ x,  // [many, 2 * few + (many - 1) / 3]
            unsigned long long* out,     /* [7] (the rest is free) */
            long long many, unsigned few,
            float eps, double finer) {
          __syncthreads();
        }
        """,
        FILE,
    )

    assert ("thing", 256, FILE) == (found.name, found.threads, found.file)
    types = ["bf16", "u64", "i64", "u32", "f32", "f64"]
    assert types == [each.dtype for each in found.parameters]
    assert ["out"] == [each.name for each in found.parameters if each.writes]


def test_a_shape_in_numbers() -> None:
    (found,) = read_signatures(
        'extern "C" __global__ void f(bf16* x /* [a, 2 * b + (a - 1) / 3] */, int a, int b) {',
        FILE,
    )

    assert 1024 == found.threads
    assert 8 * (2 * 5 + 7 // 3) == found.parameters[0].values_in({"a": 8, "b": 5})


def test_a_macro_makes_kernels() -> None:
    found = read_signatures(
        """
        #define MAKE(NAME, D)                                            \\
          extern "C" __global__ void __launch_bounds__(D) NAME##_##D(    \\
              const float* x, /* [rows, D] */                            \\
              int rows) {}
        MAKE(first, 64)
        MAKE(second, 96)
        """,
        FILE,
    )

    assert [("first_64", 64), ("second_96", 96)] == [(each.name, each.threads) for each in found]
    assert [3 * 64, 3 * 96] == [each.parameters[0].values_in({"rows": 3}) for each in found]


@pytest.mark.parametrize(
    ("declaration", "says"),
    [
        ("int* x, int n", "`x` is a pointer without a shape behind it"),
        ("int* x, // n\n int n", "`x` is a pointer without a shape behind it"),
        (
            "int* x /* [m] */, int n",
            "the shape of `x` names `m`, which is no integer that the kernel",
        ),
        ("int* x /* [f] */, float f", "the shape of `x` names `f`, which is no integer"),
        ("int* x /* [n ** 2] */, int n", "`n ** 2` is no size in names and numbers"),
        ("int* x /* [n, ] */, int n", "`` is no size in names and numbers"),
        ("int* x /* [1.5] */", "`1.5` is no size"),
        ("short n", "no launch can check a parameter declared as `short n`"),
        ("half h", "no launch can check a parameter declared as `half h`"),
        ("int** x /* [n] */, int n", "no launch can check a parameter declared as `int** x`"),
    ],
)
def test_what_cannot_be_checked_is_refused(declaration: str, says: str) -> None:
    with pytest.raises(SourceError) as caught:
        read_signatures(f'extern "C" __global__ void f({declaration}) {{', FILE)

    assert says in str(caught.value)
    assert str(caught.value).startswith("some.cu: `f`: ")


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void f(int n) {}",
        "template <int D> __global__ void f(int n) {}",
        'extern "C" __global__ __launch_bounds__(64) void f(int n) {}',
        "#define K(name) __global__ void name(int n) {}\nK(f)\n",
    ],
)
def test_a_kernel_that_would_be_overlooked_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="a kernel is not declared as"):
        read_signatures(text, FILE)


def test_a_macro_that_makes_nothing_is_refused() -> None:
    text = '#define K(name) extern "C" __global__ void name(int n) {}\n// K(f)\n'

    with pytest.raises(SourceError, match="the macro `K` declares a kernel and makes none"):
        read_signatures(text, FILE)


def test_a_name_is_one_kernels(tmp_path: Path) -> None:
    for name in ("a.cu", "b.cu"):
        (tmp_path / name).write_text('extern "C" __global__ void f(int n) {}', encoding="utf-8")

    with pytest.raises(SourceError, match=r"b.cu: `f` is in a.cu already"):
        kernels_in(tmp_path)


NUMBERS = st.recursive(
    st.one_of(st.integers(0, 99).map(str), st.sampled_from(["rows", "width"])),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({' '.join(t)})"),
    max_leaves=8,
)


@given(NUMBERS, st.integers(0, 50), st.integers(0, 50))
def test_a_size_is_what_it_says(text: str, rows: int, width: int) -> None:
    expression = parse_expression(text, "here")

    assert eval(text, {"rows": rows, "width": width}) == evaluate(
        expression, {"rows": rows, "width": width}
    )
    assert names_in(expression) == {name for name in ("rows", "width") if name in text}
