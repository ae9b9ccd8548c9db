from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark.canonical import canonicalise
from dspark.contract import Finding
from dspark.contract_reader import load_contract, load_target_contract
from dspark.errors import Unreadable
from dspark.headers import Finding as FileFinding
from dspark.headers import TensorInfo
from dspark.match_tensors import Matched, match, needed_shapes
from dspark.tensors import Tensors
from tests.support.configs import Config, with_keys, without
from tests.support.pairs import (
    TINY,
    TINY_DFLASH,
    TINY_SHAPES,
    TINY_TARGET,
    TINY_ZLAB,
    Shapes,
    backbone,
    dspark_shapes,
    heads,
    target_shapes,
)

RULES = {"qwen3-dspark": "qwen3-dspark-native", "qwen3-dflash": "qwen3-dflash-zlab"}
OTHER = {"BF16": "I32", "I64": "I32"}
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"


def listed(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> Tensors:
    infos = {
        name: TensorInfo(name, dtypes.get(name, "BF16"), shape, "model.safetensors", 0, 0)
        for name, shape in shapes.items()
    }
    return Tensors(infos, (), (("model.safetensors", 0),), 0)


def matched(
    shapes: Mapping[str, tuple[int, ...]],
    config: Config = TINY,
    lane: str = "qwen3-dspark",
    dtypes: Mapping[str, str] | None = None,
    integers: Sequence[int] = (),
    findings: tuple[FileFinding, ...] = (),
) -> Matched:
    contract = load_contract(lane)
    canonical = canonicalise(contract, config, RULES[lane], frozenset(shapes))
    assert () == canonical.findings
    found = replace(listed(shapes, dtypes or {}), findings=findings)
    return match(contract, canonical, found, lambda _: integers)


def said(found: Sequence[Finding]) -> list[tuple[str, object]]:
    return [(each.name, each.values.get("tensor")) for each in found]


REDUCED = with_keys(TINY, draft_vocab_size=40)
LANES: dict[str, tuple[str, Config, Shapes, dict[str, str]]] = {
    "dspark": ("qwen3-dspark", TINY, TINY_SHAPES, {}),
    "dspark, gated": (
        "qwen3-dspark",
        with_keys(TINY, markov_head_type="gated"),
        dspark_shapes(TINY, 3, kind="gated"),
        {},
    ),
    "dspark, rnn": (
        "qwen3-dspark",
        with_keys(TINY, markov_head_type="rnn"),
        dspark_shapes(TINY, 3, kind="rnn"),
        {},
    ),
    "dspark, plain confidence": (
        "qwen3-dspark",
        with_keys(TINY, confidence_head_with_markov=False),
        dspark_shapes(TINY, 3, confidence="plain"),
        {},
    ),
    "dspark, biases": (
        "qwen3-dspark",
        with_keys(TINY, attention_bias=True),
        TINY_SHAPES
        | {
            f"layers.{layer}.self_attn.{name}.bias": (size,)
            for layer in range(2)
            for name, size in {"q_proj": 512, "k_proj": 256, "v_proj": 256, "o_proj": 64}.items()
        },
        {},
    ),
    "dspark, reduced": (
        "qwen3-dspark",
        REDUCED,
        dspark_shapes(REDUCED, 3) | {"d2t": (40,)},
        {"d2t": "I64"},
    ),
    "dflash": ("qwen3-dflash", TINY_DFLASH, backbone(TINY, 3), {}),
}


@pytest.mark.parametrize("row", LANES)
def test_a_lanes_own_tensors_are_all_it_needs(row: str) -> None:
    lane, config, shapes, dtypes = LANES[row]

    result = matched(shapes, config, lane, dtypes, [0] * 40)

    assert [] == said(result.findings)
    assert set(shapes) == set(result.tensors)
    assert ((), {}) == (result.shared, result.tied)


def perturbed(
    shapes: Shapes, dtypes: Mapping[str, str], name: str
) -> dict[str, tuple[Shapes, dict[str, str]]]:
    """Every way one tensor can be wrong."""
    shape = shapes[name]
    rest = {other: size for other, size in shapes.items() if other != name}
    others = dict(dtypes)
    wrong = {
        "removed": (rest, others),
        "renamed": (rest | {name + "x": shape}, others),
        "dtype": (shapes, others | {name: OTHER[dtypes.get(name, "BF16")]}),
        "rank": (shapes | {name: (*shape, 1)}, others),
    }
    for axis in range(len(shape)):
        for step in (-1, 1):
            size = [*shape[:axis], shape[axis] + step, *shape[axis + 1 :]]
            wrong[f"dimension {axis} {step:+}"] = (shapes | {name: tuple(size)}, others)
    if shape != shape[::-1]:
        wrong["transposed"] = (shapes | {name: shape[::-1]}, others)
    return wrong


@pytest.mark.parametrize("row", LANES)
def test_every_tensor_of_a_lane_is_missed_when_it_is_wrong(row: str) -> None:
    lane, config, shapes, dtypes = LANES[row]
    quiet = []
    square = 0
    for name in shapes:
        cases = perturbed(shapes, dtypes, name)
        square += "transposed" not in cases and len(shapes[name]) == 2
        for change, (wrong, types) in cases.items():
            result = matched(wrong, config, lane, types, [0] * 40)
            names = [tensor for _, tensor in said(result.findings)]
            # An embedding that is not in the file is the target's, and listed as that.
            if name not in (result.shared if name == EMBEDDING and name not in wrong else names):
                quiet.append((name, change, names))
            if change == "renamed" and name + "x" not in names:
                quiet.append((name, change, names))

    assert [] == quiet
    # Only the two key and value projections and, at rank = rows, a Markov table could hide a
    # transposition; the sizes are chosen so that few are square.
    assert square <= 2 * config["num_hidden_layers"]


def test_a_target_is_held_to_its_tensors_too() -> None:
    known = load_target_contract()
    for tied in (False, True):
        config = with_keys(TINY_TARGET, tie_word_embeddings=tied)
        canonical = canonicalise(known.contract, config, "", None)
        shapes = target_shapes(config)
        assert shapes == needed_shapes(known.contract, canonical.values)
        for name in shapes:
            for change, (wrong, types) in perturbed(shapes, {}, name).items():
                found = match(known.contract, canonical, listed(wrong, types), lambda _: ())
                assert name in [tensor for _, tensor in said(found.findings)], (name, change)


def test_a_tied_targets_head_is_ignored() -> None:
    known = load_target_contract()
    config = with_keys(TINY_TARGET, tie_word_embeddings=True)
    canonical = canonicalise(known.contract, config, "", None)
    shapes = target_shapes(config) | {HEAD: (160, 64)}

    result = match(known.contract, canonical, listed(shapes, {}), lambda _: ())

    assert [] == said(result.findings)
    assert [("ignored-tensor", HEAD)] == said(result.warnings)
    assert HEAD not in result.tensors


def test_findings_say_expected_and_got() -> None:
    shapes = TINY_SHAPES | {"fc.weight": (192, 64)}

    result = matched(shapes, dtypes={"norm.weight": "F16"})

    by_name = {each.name: each for each in result.findings}
    assert {"tensor-shape", "tensor-dtype"} == set(by_name)
    shape, dtype = by_name["tensor-shape"], by_name["tensor-dtype"]
    assert ([64, 192], [192, 64]) == (shape.values["expected"], shape.values["got"])
    assert "hidden_size, count(target_layer_ids) * target_hidden_size" == shape.values["from_keys"]
    assert ("BF16 or F32", "F16") == (dtype.values["expected"], dtype.values["got"])


@pytest.mark.parametrize(
    ("embedding", "head", "tie", "shared", "tied", "missing"),
    [
        # present, present: what is in the file is used
        (True, True, False, [], False, False),
        (True, True, True, [], False, False),
        (True, False, True, [], True, False),
        (True, False, False, [], False, True),
        (False, False, False, [EMBEDDING, HEAD], False, False),
        (False, False, True, [EMBEDDING, HEAD], False, False),
        (False, True, False, [EMBEDDING], False, False),
        (False, True, True, [EMBEDDING], False, False),
    ],
)
def test_whose_embedding_and_head(
    embedding: bool, head: bool, tie: bool, shared: list[str], tied: bool, missing: bool
) -> None:
    shapes = backbone(TINY, 3, own_embedding=embedding, own_head=head) | heads(TINY)

    result = matched(shapes, with_keys(TINY, tie_word_embeddings=tie))

    assert shared == list(result.shared)
    assert ({HEAD: EMBEDDING} if tied else {}) == result.tied
    assert ([("tensor-missing", HEAD)] if missing else []) == said(result.findings)
    flagged = [("tie-flag-ignored", HEAD)] if head and tie else []
    assert flagged == said(result.warnings)


@pytest.mark.parametrize("embedding", [True, False])
@pytest.mark.parametrize("tie", [True, False])
def test_nobody_has_the_head_of_a_reduced_vocabulary(embedding: bool, tie: bool) -> None:
    shapes = backbone(REDUCED, 3, own_embedding=embedding, own_head=False) | heads(REDUCED)

    result = matched(
        shapes | {"d2t": (40,)},
        with_keys(REDUCED, tie_word_embeddings=tie),
        dtypes={"d2t": "I64"},
        integers=[0] * 40,
    )

    assert [("tensor-missing", HEAD)] == said(result.findings)


def test_a_reduced_vocabulary_needs_its_map_and_another_does_not() -> None:
    without_map = dspark_shapes(REDUCED, 3)

    assert [("tensor-missing", "d2t")] == said(matched(without_map, REDUCED).findings)
    assert [] == said(matched(TINY_SHAPES).findings)


@pytest.mark.parametrize("tie", [True, False])
def test_a_map_over_the_head_of_another_is_refused(tie: bool) -> None:
    """The map belongs to the draft's own head: over a shared or tied one it repoints every id."""
    shapes = backbone(TINY, 3, own_embedding=tie, own_head=False) | heads(TINY)
    config = with_keys(TINY, tie_word_embeddings=tie)
    assert [] == said(matched(shapes, config).findings)

    result = matched(shapes | {"d2t": (160,)}, config, dtypes={"d2t": "I64"}, integers=[0] * 160)

    assert [("tensor-unexpected", "d2t")] == said(result.findings)


def offsets_are_a_map(offsets: Sequence[int], rows: int) -> bool:
    ids = [index + offset for index, offset in enumerate(offsets)]
    return all(0 <= number < rows for number in ids) and len(set(ids)) == len(ids)


@given(
    ids=st.lists(st.integers(0, 159), min_size=40, max_size=40, unique=True),
    index=st.integers(0, 39),
    target_id=st.sampled_from([-1, 0, 159, 160]) | st.integers(-3, 163),
)
def test_a_map_is_taken_if_it_is_one_to_one_into_the_target(
    ids: list[int], index: int, target_id: int
) -> None:
    ids[index] = target_id
    offsets = [target_id - draft_id for draft_id, target_id in enumerate(ids)]
    shapes = dspark_shapes(REDUCED, 3) | {"d2t": (40,)}

    result = matched(shapes, REDUCED, dtypes={"d2t": "I64"}, integers=offsets)

    expected = [] if offsets_are_a_map(offsets, 160) else [("tensor-value", "d2t")]
    assert expected == said(result.findings)


@given(st.sets(st.integers(0, 159), min_size=40, max_size=40))
def test_every_map_that_is_one_is_taken(ids: set[int]) -> None:
    offsets = [target_id - index for index, target_id in enumerate(sorted(ids))]
    shapes = dspark_shapes(REDUCED, 3) | {"d2t": (40,)}

    result = matched(shapes, REDUCED, dtypes={"d2t": "I64"}, integers=offsets)

    assert [] == said(result.findings)


def test_a_map_is_read_only_when_the_headers_are_in_order() -> None:
    shapes = without(dspark_shapes(REDUCED, 3), "fc.weight") | {"d2t": (40,)}

    result = matched(shapes, REDUCED, dtypes={"d2t": "I64"}, integers=[-1] * 40)

    assert [("tensor-missing", "fc.weight")] == said(result.findings)


def test_a_map_that_cannot_be_read_is_a_finding() -> None:
    contract = load_contract("qwen3-dspark")
    canonical = canonicalise(contract, REDUCED, RULES["qwen3-dspark"], None)
    shapes = dspark_shapes(REDUCED, 3) | {"d2t": (40,)}

    def fail(_: TensorInfo) -> Sequence[int]:
        raise Unreadable("shard-unreadable", file="model.safetensors", reason="it is gone")

    result = match(contract, canonical, listed(shapes, {"d2t": "I64"}), fail)

    assert ["shard-unreadable"] == [each.name for each in result.findings]


def test_what_trainers_leave_behind_is_listed_and_not_used() -> None:
    left = {"t2d": (160,), "mask_embedding": (64,)}

    result = matched(TINY_SHAPES | left, dtypes={"t2d": "BOOL"})

    assert [] == said(result.findings)
    assert [("ignored-tensor", "t2d"), ("ignored-tensor", "mask_embedding")] == said(
        result.warnings
    )
    assert not set(left) & set(result.tensors)


@pytest.mark.parametrize("name", ["layers.2.input_layernorm.weight", "attention_conv.weight"])
def test_a_tensor_nobody_reads_is_unexpected(name: str) -> None:
    result = matched(TINY_SHAPES | {name: (64,)})

    assert [("tensor-unexpected", name)] == said(result.findings)


def test_prefixes_are_taken_off_once() -> None:
    once = {f"model.{name}": shape for name, shape in TINY_SHAPES.items()}
    twice = {f"model.model.{name}": shape for name, shape in TINY_SHAPES.items()}

    assert [] == said(matched(once).findings)
    assert "tensor-unexpected" in {each.name for each in matched(twice).findings}


def test_two_spellings_are_one_finding_with_both_names() -> None:
    result = matched(TINY_SHAPES | {"model.norm.weight": (64,)})

    (found,) = result.findings
    assert "tensor-duplicate" == found.name
    assert "`norm.weight` in `model.safetensors`" == found.values["file"]
    assert "`model.norm.weight` in `model.safetensors`" == found.values["other"]


def test_findings_of_a_known_list_do_not_hide_the_others() -> None:
    cut = FileFinding("shard-truncated", {"file": "f", "expected": 2, "actual": 1})

    result = matched(without(TINY_SHAPES, "fc.weight"), findings=(cut,))

    assert ["shard-truncated", "tensor-missing"] == [each.name for each in result.findings]


def test_what_an_unknown_list_lacks_is_not_guessed() -> None:
    gone = FileFinding("shard-missing", {"file": "f", "listed_in": "i"})

    result = matched(without(TINY_SHAPES, "fc.weight"), findings=(gone,))

    assert ["shard-missing"] == [each.name for each in result.findings]
    assert {} == result.tensors


def test_a_tensor_that_its_shard_lacks_is_missed_once() -> None:
    values = {"tensor": "fc.weight", "file": "f", "index": "i"}
    lost = FileFinding("tensor-missing", values)

    result = matched(without(TINY_SHAPES, "fc.weight"), findings=(lost,))

    assert [("tensor-missing", "fc.weight")] == said(result.findings)
    assert "i" == result.findings[0].values["index"]


def test_zlab_drafts_have_nothing_of_their_own() -> None:
    shapes = backbone(TINY, 3, own_embedding=False, own_head=False)

    result = matched(shapes, TINY_ZLAB, "qwen3-dflash")

    assert [] == said(result.findings)
    assert (EMBEDDING, HEAD) == result.shared


def test_the_published_layout_is_what_a_contract_asks_for() -> None:
    contract = load_contract("qwen3-dspark")
    canonical = canonicalise(contract, TINY, RULES["qwen3-dspark"], None)

    assert TINY_SHAPES == needed_shapes(contract, canonical.values)
