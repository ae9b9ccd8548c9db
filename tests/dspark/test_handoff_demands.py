"""Which pairs vLLM serves as they were trained, and which it starts and never accepts from.

What each class of vLLM 0.33 does was read in its source; the recipes say where.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark.cli import main
from dspark.handoff_reader import handoff_table
from tests.support.handoffs import (
    DEEPSEEK_V4,
    DEEPSEEK_V41,
    DFLASH,
    DSPARK,
    FOR_OMNI,
    GEMMA4_DRAFT,
    GEMMA4_TARGET,
    KIMI_K3,
    KIMI_TARGET,
    LAGUNA,
    MUSE,
    OMNI,
    SERVED,
    SPECULATORS,
    SPECULATORS_DFLASH2,
    SPECULATORS_OMNI,
    TARGET,
    Config,
    Pair,
    named,
    speculators,
    write,
)

OK, REFUSED = 0, 3
DFLASH2 = DFLASH | {"architectures": ["DFlash2DraftModel"]}
BEAM = DFLASH | {"architectures": ["DFlash2BeamDraftModel"]}
SPECULATORS_DFLASH = speculators("dflash")
OMNI_DRAFT = named("Qwen3OmniDSparkModel") | FOR_OMNI
LILICORR = named("LiLiCorrDraftModel")
XPRESS = named("Qwen3XPressModel")
GLIMMER = named("MuseGlimmerAssistantModel")
# Every size is the Qwen3 target's.
LLAMA = TARGET | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
MIXTRAL = TARGET | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Asks for a hand-off as a user does; the exit code and all that was printed."""

    def ask(draft: Config, target: Config | None = TARGET) -> tuple[int, str]:
        words = [write(tmp_path / "draft", draft)]
        if target is not None:
            words += ["--target", write(tmp_path / "target", target)]
        # No more than any draft here proposes, and the one number that Omni takes.
        fixed = "Qwen3OmniDSparkModel" in draft.get("architectures", ())
        words += ["--num-speculative-tokens", "5" if fixed else "2"]
        code = main(["handoff", "vllm", *words])
        written = capsys.readouterr()
        return code, written.out + written.err

    return ask


def served(found: tuple[int, str]) -> bool:
    code, text = found
    return code == OK and text.startswith("vllm serve ")


# ------------------------------------------------------------------------ the target's family


@pytest.mark.parametrize(
    "draft", [DSPARK, named("DSparkDraftModel"), SPECULATORS, DFLASH, SPECULATORS_DFLASH, DFLASH2]
)
def test_layers_of_qwen3_can_be_drafted_from_a_target_of_another_family(
    draft: Config, ask: Any
) -> None:
    # vLLM builds Qwen3 layers whatever the target is, and takes fc's input from any class that
    # hands out its layers, as Llama's does. Published drafts for Qwen3.5 are such pairs.
    assert {key: TARGET[key] for key in TARGET if key not in ("architectures", "model_type")} == {
        key: LLAMA[key] for key in LLAMA if key not in ("architectures", "model_type")
    }

    assert served(ask(draft, LLAMA))


def test_a_published_draft_of_qwen3_layers_for_another_family_is_handed_over(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = repository / "tests/corpus/z-lab__Qwen3.5-4B-DFlash"
    draft = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert "qwen3" == draft["model_type"]
    sizes = {
        "hidden_size": draft["hidden_size"],
        "num_hidden_layers": draft["num_target_layers"],
        "vocab_size": draft["vocab_size"],
    }
    target = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {"model_type": "qwen3_5_text"} | sizes,
    }

    code = main(["handoff", "vllm", str(folder), "--target", write(tmp_path, target)])

    assert served((code, capsys.readouterr().out))


LAYERED = [
    pytest.param(pair, id=f"{number}-{pair.rule_id}")
    for number, pair in enumerate(SERVED)
    if pair.rule_id not in ("R001", "R002", "R003", "R007", "R027", "R031")
]
"""The drafts from layers whose target may be of any family."""


@pytest.mark.parametrize("pair", LAYERED)
def test_a_target_that_hands_out_no_layers_has_no_draft_of_them(pair: Pair, ask: Any) -> None:
    target = {**(pair.target or {}), "architectures": ["MixtralForCausalLM"]}

    code, text = ask(pair.draft, target)

    assert REFUSED == code
    assert "[X021 handoff-target-uncaptured]" in text
    assert "vLLM 0.33 hands out no layers of `MixtralForCausalLM`, and this draft drafts" in text


def test_a_draft_that_needs_no_layers_can_be_for_any_target(ask: Any) -> None:
    eagle = named("EagleLlamaForCausalLM", "llama")
    alone = named("LlamaForCausalLMEagle3", "llama", eagle_config={"use_aux_hidden_state": False})

    assert served(ask(eagle, MIXTRAL))
    assert served(ask(alone, MIXTRAL))


def test_the_first_architecture_is_the_one_that_vllm_takes(ask: Any) -> None:
    # `FooModel` may be registered by a package beside vLLM.
    assert served(ask(DSPARK, MIXTRAL | {"architectures": ["FooModel", "MixtralForCausalLM"]}))
    _, text = ask(DSPARK, MIXTRAL | {"architectures": ["MixtralForCausalLM", "FooModel"]})
    assert "[X021 " in text


def test_no_recipe_asks_for_a_target_that_hands_out_nothing() -> None:
    table = handoff_table()
    asked = {
        value
        for recipe in table.recipes.values()
        for demand in recipe.demands
        if demand.kind == "target"
        for value in demand.values
    }

    assert 100 < len(table.uncaptured) == len(set(table.uncaptured))
    assert asked
    assert not asked & set(table.uncaptured)


# ----------------------------------------------------------------------------- the vocabulary

MAPPED = [
    (DSPARK, TARGET), (named("DSparkDraftModel"), TARGET), (SPECULATORS, TARGET),
    (OMNI_DRAFT, OMNI), (SPECULATORS_OMNI, OMNI), (MUSE, TARGET), (DFLASH, TARGET),
    (SPECULATORS_DFLASH, TARGET), (GLIMMER, TARGET),
]  # fmt: skip
"""Classes that read d2t."""
UNMAPPED = [
    (GEMMA4_DRAFT, GEMMA4_TARGET), (KIMI_K3, KIMI_TARGET), (DFLASH2, TARGET), (BEAM, TARGET),
    (SPECULATORS_DFLASH2, TARGET), (LILICORR, TARGET), (XPRESS, TARGET), (LAGUNA, TARGET),
]  # fmt: skip
"""Classes that propose the ids of their own rows."""


@pytest.mark.parametrize(("draft", "target"), MAPPED)
def test_a_part_of_the_vocabulary_is_proposed_from_where_vllm_maps_it(
    draft: Config, target: Config, ask: Any
) -> None:
    # Whether the checkpoint has the map and a head of that size, its config does not say.
    assert served(ask(draft | {"draft_vocab_size": 300}, target))


@pytest.mark.parametrize(("draft", "target"), UNMAPPED)
def test_a_part_of_the_vocabulary_is_refused_where_vllm_maps_nothing(
    draft: Config, target: Config, ask: Any
) -> None:
    size = (target.get("text_config") or target)["vocab_size"]
    assert served(ask(draft | {"draft_vocab_size": size}, target))

    code, text = ask(draft | {"draft_vocab_size": 300}, target)

    assert REFUSED == code
    assert "[P001 target-mismatch]" in text
    assert (
        f"its `draft_vocab_size` is `300`, and the target asks for {size} (its `vocab_size`)"
        in (text)
    )


@pytest.mark.parametrize(
    ("draft", "target"), [pair for pair in MAPPED + UNMAPPED if pair[0] not in (LAGUNA, GLIMMER)]
)
@pytest.mark.parametrize("part", [300, 512])
def test_a_draft_that_knows_fewer_ids_than_the_target_was_made_for_another(
    draft: Config, target: Config, part: int, ask: Any
) -> None:
    nested = "transformer_layer_config" in draft
    layers = "transformer_layer_config"
    few = {layers: draft[layers] | {"vocab_size": 511}} if nested else {"vocab_size": 511}

    code, text = ask(draft | few | {"draft_vocab_size": part}, target)

    assert REFUSED == code
    assert "[P001 target-mismatch]" in text
    key = f"{layers}.vocab_size" if nested else "vocab_size"
    assert f"its `{key}` is `511`, and the target asks for " in text


@pytest.mark.parametrize(("draft", "target", "says"), [
    (DSPARK, TARGET, None),
    (DFLASH, TARGET, None),
    (GEMMA4_DRAFT, GEMMA4_TARGET, "`vocab_size` is `300000`, and the target asks for 262144"),
    (KIMI_K3, KIMI_TARGET, "`vocab_size` is `300000`, and the target asks for 163840"),
    (MUSE, TARGET, "`vocab_size` is `300000`, and the target asks for 512"),
])  # fmt: skip
def test_more_ids_to_look_up_than_to_propose_need_an_embedding_of_their_own(
    draft: Config, target: Config, says: str | None, ask: Any
) -> None:
    # The others take the target's embedding in place of theirs, or have a head of that many rows.
    proposed = (target.get("text_config") or target)["vocab_size"]

    code, text = ask(draft | {"vocab_size": 300_000, "draft_vocab_size": proposed}, target)

    assert served((code, text)) if says is None else says in text


def test_laguna_is_told_the_size_of_its_vocabulary(ask: Any) -> None:
    code, text = ask(LAGUNA | {"draft_vocab_size": None})

    assert REFUSED == code
    assert "[X004 handoff-key-unread]" in text
    assert "looks for `draft_vocab_size`" in text


# ------------------------------------------------------------------------------ the layer ids

NESTED = {"mask_token_id": 500, "target_layer_ids": [1, 3, 6]}


def ids(key: str, entries: list[int]) -> Config:
    """A config's key with these entries, at `dflash_config.` beside a mask token."""
    parent, _, name = key.rpartition(".")
    return {parent: NESTED | {name: entries}} if parent else {key: entries}


BLOCKS = "dflash_config.target_layer_ids"
STAGES, AUX = "dspark_target_layer_ids", "aux_hidden_state_layer_ids"
TAPS: list[tuple[str, Config, Config | None, int, int]] = [
    # The key, the pair, and the least and the greatest entry that there is something to read at.
    ("target_layer_ids", DSPARK, TARGET, -1, 7),
    (STAGES, DSPARK, TARGET, -1, 7),
    (BLOCKS, DSPARK, TARGET, -1, 7),
    ("eagle_aux_hidden_state_layer_ids", DSPARK, TARGET, 0, 8),
    (AUX, SPECULATORS, TARGET, 0, 8),
    ("target_layer_ids", GEMMA4_DRAFT, GEMMA4_TARGET, -1, 47),
    (STAGES, GEMMA4_DRAFT, GEMMA4_TARGET, -1, 47),
    ("target_layer_ids", KIMI_K3, KIMI_TARGET, -1, 92),
    ("target_layer_ids", OMNI_DRAFT, OMNI, 0, 7),
    (STAGES, OMNI_DRAFT, OMNI, 0, 7),
    (AUX, SPECULATORS_OMNI, OMNI, 1, 8),
    ("target_layer_ids", MUSE, TARGET, -1, 7),
    (STAGES, DEEPSEEK_V4, None, 0, 42),
    (STAGES, DEEPSEEK_V41, None, 1, 43),
    (BLOCKS, DFLASH, TARGET, -1, 7),
    (STAGES, DFLASH | {"dflash_config": {"mask_token_id": 500}}, TARGET, -1, 7),
    ("eagle_aux_hidden_state_layer_ids", DFLASH, TARGET, 0, 8),
    (AUX, SPECULATORS_DFLASH, TARGET, 0, 8),
    (BLOCKS, DFLASH2, TARGET, -1, 7),
    ("eagle_aux_hidden_state_layer_ids", DFLASH2, TARGET, 0, 8),
    (AUX, SPECULATORS_DFLASH2, TARGET, 0, 8),
    ("target_layer_ids", GLIMMER, TARGET, -1, 7),
    ("target_layer_ids", LILICORR, TARGET, -1, 7),
    ("target_layer_ids", LAGUNA, TARGET, -1, 7),
]  # fmt: skip


def depth(draft: Config) -> str:
    """The key that says how many layers a draft's target has."""
    kimi = "target_num_hidden_layers"
    return kimi if kimi in draft else "num_target_layers"


@pytest.mark.parametrize(("key", "draft", "target", "least", "greatest"), TAPS)
def test_every_layer_that_is_drafted_from_is_one_of_the_targets(
    key: str, draft: Config, target: Config | None, least: int, greatest: int, ask: Any
) -> None:
    def asked(*entries: int) -> tuple[int, str]:
        alone = {depth(draft): None} if depth(draft) in draft else {}
        found: tuple[int, str] = ask(draft | ids(key, list(entries)) | alone, target)
        return found

    assert served(asked(least, greatest))
    for entries, says in (
        ([least, greatest + 1], "(its `num_hidden_layers`)"),
        ([least - 1, greatest], f"asks for entries from {least} to {greatest}"),
    ):
        code, text = asked(*entries)

        assert REFUSED == code
        assert "[P001 target-mismatch]" in text
        assert f"its `{key}` is `[{entries[0]}, {entries[1]}]`" in text
        assert says in text


DEEP: list[tuple[str, Config, Config, int, str]] = [
    # The key, the pair, the layers that both say the target has, and how the greatest is bounded.
    ("target_layer_ids", DSPARK, TARGET, 8, "entries less than"),
    (STAGES, DSPARK, TARGET, 8, "entries less than"),
    (BLOCKS, DSPARK, TARGET, 8, "entries less than"),
    ("eagle_aux_hidden_state_layer_ids", DSPARK, TARGET, 8, "at most"),
    (AUX, SPECULATORS, TARGET, 8, "at most"),
    ("target_layer_ids", GEMMA4_DRAFT, GEMMA4_TARGET, 48, "entries less than"),
    (STAGES, GEMMA4_DRAFT, GEMMA4_TARGET, 48, "entries less than"),
    ("target_layer_ids", KIMI_K3, KIMI_TARGET, 93, "entries less than"),
    (BLOCKS, DFLASH, TARGET, 8, "entries less than"),
    (STAGES, DFLASH | {"dflash_config": {"mask_token_id": 500}}, TARGET, 8, "entries less than"),
    ("eagle_aux_hidden_state_layer_ids", DFLASH, TARGET, 8, "at most"),
    (AUX, SPECULATORS_DFLASH, TARGET, 8, "at most"),
    (BLOCKS, DFLASH2, TARGET, 8, "entries less than"),
    ("eagle_aux_hidden_state_layer_ids", DFLASH2, TARGET, 8, "at most"),
    (AUX, SPECULATORS_DFLASH2, TARGET, 8, "at most"),
]


@pytest.mark.parametrize(("key", "draft", "target", "layers", "bounded"), DEEP)
def test_a_layer_that_the_draft_itself_denies_is_said_of_the_draft(
    key: str, draft: Config, target: Config, layers: int, bounded: str, ask: Any
) -> None:
    said = depth(draft)
    draft = draft | {said: layers}
    greatest = layers if bounded == "at most" else layers - 1
    assert served(ask(draft | ids(key, [2, greatest]), target))

    code, text = ask(draft | ids(key, [2, greatest + 1]), target)

    assert REFUSED == code
    assert "[C005 inconsistent-config]" in text
    assert (
        f"`{key}` is `[2, {greatest + 1}]`, and the rest of the config asks for {bounded} "
        f"`{said}` ({layers})"
    ) in text
    assert "correct whichever of the keys is wrong" in text
    assert "P001" not in text


def test_what_the_draft_denies_is_not_said_of_the_target_too(ask: Any) -> None:
    code, text = ask(DSPARK | {"num_target_layers": 6, "target_layer_ids": [1, 8]})

    assert REFUSED == code
    assert "refused  2 findings" in text
    assert "`target_layer_ids` is `[1, 8]`, and the rest of the config asks for" in text
    assert "its `num_target_layers` is `6`, and the target asks for 8" in text
    assert text.index("C005") < text.index("P001")


def test_only_what_the_draft_denies_is_said_once(ask: Any) -> None:
    code, text = ask(DSPARK | {"vocab_size": "512"})

    assert REFUSED == code
    for bounded in ("at least", "at most"):
        assert f"`vocab_size` is `512`, and the target asks for {bounded} 512" in text


@pytest.mark.parametrize(
    ("entries", "says"),
    [([-2, 3], "entries from -1 to 7"), ([], "one entry or more"), ([1, "9"], "entries less than")],
)
def test_what_the_drafts_own_number_does_not_bound_is_the_targets_to_say(
    entries: list[object], says: str, ask: Any
) -> None:
    assert "num_target_layers" in DSPARK

    code, text = ask(DSPARK | {"target_layer_ids": entries})

    assert REFUSED == code
    assert "[P001 target-mismatch]" in text
    assert f"and the target asks for {says}" in text
    assert "C005" not in text


def test_a_hand_off_says_of_a_denied_layer_what_the_lane_says(
    ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = ask(DSPARK | {"target_layer_ids": [1, 8]})

    main(["route", "--check", "--json", str(tmp_path / "draft")])

    findings = json.loads(capsys.readouterr().out)["findings"]
    (denied,) = [each["message"] for each in findings if each["rule_id"] == "C005"]
    assert denied in text


@pytest.mark.parametrize(("key", "draft", "target", "least", "greatest"), TAPS)
def test_the_layers_come_in_the_targets_order_and_once_each(
    key: str, draft: Config, target: Config | None, least: int, greatest: int, ask: Any
) -> None:
    for entries in ([greatest, least], [greatest, greatest]):
        code, text = ask(draft | ids(key, entries), target)

        assert REFUSED == code
        assert "[X005 handoff-key-unsupported]" in text
        assert (
            f"`{key}` is `[{entries[0]}, {entries[1]}]`, and vLLM 0.33 runs this draft only with "
            "entries in strictly increasing order"
        ) in text


@pytest.mark.parametrize(
    ("draft", "target", "key"),
    [
        *((MUSE, TARGET, key) for key in ("mask_token_id", "target_layer_ids")),
        *((MUSE, TARGET, key) for key in ("target_hidden_size", "enable_confidence_head")),
        *((KIMI_K3, KIMI_TARGET, key) for key in ("num_target_layers", "target_hidden_size")),
    ],
)
def test_a_key_that_the_class_reads_is_there(
    draft: Config, target: Config, key: str, ask: Any
) -> None:
    assert served(ask(draft, target))

    code, text = ask({name: each for name, each in draft.items() if name != key}, target)

    assert REFUSED == code
    assert "[X004 handoff-key-unread]" in text
    assert f"looks for `{key}` in the config" in text


@pytest.mark.parametrize("entries", [[1, "3"], [1, [3]], [1, None]])
def test_an_entry_that_is_no_layer_is_said_once(entries: list[object], ask: Any) -> None:
    code, text = ask(DSPARK | {"target_layer_ids": entries})

    assert REFUSED == code
    assert "[P001 target-mismatch]" in text
    assert "asks for entries less than 8 (its `num_hidden_layers`)" in text
    assert "X005" not in text
