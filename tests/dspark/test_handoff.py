"""What a pair is handed over as, and what is refused before anyone types anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dspark
from dspark.errors import Refused
from dspark.handed_over import HandOff
from dspark.handoff_command import commands
from dspark.handoff_demands import unmet
from dspark.handoff_reader import handoff_table
from dspark.handoff_table import Demand
from tests.support.handoffs import (
    DEEPSEEK_V4,
    DFLASH,
    DSPARK,
    GEMMA4_DRAFT,
    GEMMA4_TARGET,
    KIMI_K3,
    KIMI_TARGET,
    LAGUNA,
    MTP_TARGET,
    OMNI,
    SERVED,
    SPECULATORS,
    SPECULATORS_OMNI,
    TARGET,
    Config,
    Pair,
    named,
    speculators,
    write,
)

GIVEN_APART: list[tuple[str, Config, Config | None, str]] = [
    ("X012", DSPARK, None, "no target was given for it"),
    ("X012", named("Glm4MoeMTPModel"), None, "no target was given for it"),
    ("X011", DEEPSEEK_V4, TARGET, "that checkpoint is its only target"),
    ("P003", DSPARK, DFLASH, "itself a draft (`architectures` is `DFlashDraftModel`)"),
]


def hand_off(folder: Path, draft: Config, target: Config | None = TARGET, **more: Any) -> HandOff:
    place = None if target is None else write(folder / "target", target)
    return dspark.hand_off(write(folder / "draft", draft), target=place, **more)


def refusal(folder: Path, draft: Config, target: Config | None = TARGET, **more: Any) -> Any:
    with pytest.raises(Refused) as caught:
        hand_off(folder, draft, target, **more)
    return caught.value.decision


# ----------------------------------------------------------------------------------- served


def test_every_recipe_and_every_served_rule_is_among_the_pairs_that_are_tried() -> None:
    table = handoff_table()
    served = {rule for rule, cases in table.rules.items() if any(case.recipe for case in cases)}

    assert served == {pair.rule_id for pair in SERVED}


def test_every_recipe_is_reached(tmp_path: Path) -> None:
    found = {
        hand_off(tmp_path / str(n), p.draft, p.target, num_speculative_tokens=p.asked).recipe.name
        for n, p in enumerate(SERVED)
    }

    assert set(handoff_table().recipes) == found


@pytest.mark.parametrize(
    "pair", [pytest.param(p, id=f"{n}-{p.rule_id}") for n, p in enumerate(SERVED)]
)
def test_method_and_number_are_those_of_the_draft(pair: Pair, tmp_path: Path) -> None:
    found = hand_off(tmp_path, pair.draft, pair.target, num_speculative_tokens=pair.asked)

    assert (pair.rule_id, pair.method) == (found.decision.rule_id, found.method)
    assert pair.tokens == found.num_speculative_tokens


def test_a_lane_and_a_hand_off_count_the_same_drafts(tmp_path: Path) -> None:
    # The lane's own contract reads the config by its own rules, and must come to the same number.
    from dspark.canonical import DRAFTS, canonicalise
    from dspark.contract_reader import load_contract

    counted = 0
    for number, pair in enumerate(SERVED):
        found = hand_off(
            tmp_path / str(number), pair.draft, pair.target, num_speculative_tokens=pair.asked
        )
        if found.decision.lane is not None:
            contract = load_contract(found.decision.lane)
            read = canonicalise(contract, pair.draft, found.decision.name, None)
            assert found.proposes == read.values[DRAFTS], pair
            counted += 1
    assert 8 <= counted


def test_the_speculative_config_names_a_draft_of_its_own(tmp_path: Path) -> None:
    found = hand_off(tmp_path, DSPARK)

    assert {
        "method": "dspark",
        "model": str(tmp_path / "draft"),
        "num_speculative_tokens": 5,
    } == found.speculative_config


def test_a_draft_inside_its_target_is_not_named(tmp_path: Path) -> None:
    alone = hand_off(tmp_path, DEEPSEEK_V4, None)
    (tmp_path / "link").symlink_to("draft")
    twice = dspark.hand_off(tmp_path / "draft", target=tmp_path / "link")

    assert {"method": "dspark", "num_speculative_tokens": 5} == alone.speculative_config
    assert alone.speculative_config == twice.speculative_config
    assert str(tmp_path / "link") == twice.target.name
    assert str(tmp_path / "draft") == alone.target.name


def test_a_target_with_stages_inside_can_have_another_draft(tmp_path: Path) -> None:
    draft = named("LlamaForCausalLMEagle3", "llama")

    assert "eagle3" == hand_off(tmp_path, draft, DEEPSEEK_V4, num_speculative_tokens=3).method


def test_a_module_of_the_target_is_read_from_the_target(tmp_path: Path) -> None:
    found = hand_off(tmp_path, named("Glm4MoeMTPModel", "glm4_moe_mtp"), MTP_TARGET)

    assert {"method": "mtp", "num_speculative_tokens": 1} == found.speculative_config
    assert str(tmp_path / "target") == found.target.name


def test_parallel_eagle_says_so(tmp_path: Path) -> None:
    found = hand_off(tmp_path, speculators("peagle"))

    assert ("eagle3", True) == (found.method, found.speculative_config["parallel_drafting"])


def test_repos_are_named_with_their_revisions(tmp_path: Path) -> None:
    def download(repo: str, name: str, *, revision: str | None) -> str:
        assert ("config.json", True) == (name, repo in ("owner/draft", "owner/target"))
        config = DSPARK if repo == "owner/draft" else TARGET
        return str(Path(write(tmp_path / repo / str(revision), config)) / name)

    found = dspark.hand_off("owner/draft@v2", target="owner/target@abc", download=download)

    assert ("owner/draft", "v2") == (
        found.speculative_config["model"],
        found.speculative_config["revision"],
    )
    (command,) = commands(found)
    assert ("vllm", "serve", "owner/target", "--revision", "abc") == command.argv[:5]


# ---------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(("rule_id", "draft", "target", "says"), GIVEN_APART)
def test_where_the_target_is(
    rule_id: str, draft: Config, target: Config | None, says: str, tmp_path: Path
) -> None:
    decision = refusal(tmp_path, draft, target)

    assert (rule_id, "handoff") == (decision.rule_id, decision.stage)
    assert says in decision.refusal.message


DFLASH2 = DFLASH | {"architectures": ["DFlash2DraftModel"]}
NO_DEPTH = DFLASH2 | {"num_target_layers": None}
UNMET: list[tuple[str, Config, Config, str]] = [
    (
        "X004",
        DSPARK | {"markov_rank": None, "dflash_config": {"markov_rank": 16}},
        TARGET,
        "`markov_rank` in",
    ),
    (
        "X004",
        DSPARK | {"mask_token_id": None},
        TARGET,
        "`mask_token_id` or `dspark_noise_token_id` in",
    ),
    ("X004", SPECULATORS | {"mask_token_id": None}, TARGET, "`mask_token_id` in the config"),
    (
        "X004",
        DFLASH | {"dflash_config": {"mask_token_id": 500}},
        TARGET,
        "`dflash_config.target_layer_ids`, ",
    ),
    ("X005", DSPARK | {"markov_head_type": "gated"}, TARGET, "`markov_head_type` is `gated`"),
    ("X005", DSPARK | {"eagle_config": None}, TARGET, "`eagle_config` is `null`"),
    ("X005", SPECULATORS | {"sliding_window_non_causal": True}, TARGET, "only with `false`"),
    ("X005", speculators("dflash", sliding_window_non_causal=False), TARGET, "only with `true`"),
    ("X006", DSPARK | {"dspark_bonus_anchor": True}, TARGET, "`dspark_bonus_anchor` is `true`"),
    ("X006", DFLASH | {"sample_from_anchor": True}, TARGET, "`sample_from_anchor` is `true`"),
    (
        "X007",
        GEMMA4_DRAFT,
        TARGET,
        "target whose architecture is `Gemma4ForConditionalGeneration`, ",
    ),
    ("X007", named("Qwen3OmniDSparkModel"), TARGET, "and it is `Qwen3ForCausalLM`"),
    ("P001", DSPARK | {"hidden_size": 32}, TARGET, "its `hidden_size` is `32`"),
    ("P001", DSPARK | {"target_hidden_size": 32}, TARGET, "its `target_hidden_size` is `32`"),
    ("P001", DSPARK | {"num_target_layers": 9}, TARGET, "its `num_target_layers` is `9`"),
    (
        "P001",
        DSPARK | {"target_layer_ids": [1, 8], "num_target_layers": None},
        TARGET,
        "entries less than 8 (its `num_hidden_layers`)",
    ),
    (
        "P001",
        SPECULATORS | {"aux_hidden_state_layer_ids": [9]},
        TARGET,
        "at most 8 (its `num_hidden_layers`)",
    ),
    (
        "P001",
        GEMMA4_DRAFT | {"num_target_layers": 60},
        GEMMA4_TARGET,
        "its `num_target_layers` is `60`",
    ),
    (
        "P001",
        speculators("dflash", aux_hidden_state_layer_ids=[2, 5, 9]),
        TARGET,
        "`[2, 5, 9]`, and the target asks for at most 8 (its `num_hidden_layers`)",
    ),
    (
        "P001",
        DSPARK | {"target_layer_ids": [1, 4, -3]},
        TARGET,
        "`[1, 4, -3]`, and the target asks for entries from -1 to 7",
    ),
    (
        "P001",
        SPECULATORS | {"aux_hidden_state_layer_ids": [-1, 4]},
        TARGET,
        "`[-1, 4]`, and the target asks for entries from 0 to 8",
    ),
    ("P001", DSPARK | {"target_layer_ids": []}, TARGET, "asks for one entry or more"),
    (
        "P001",
        DSPARK | {"eagle_aux_hidden_state_layer_ids": [9], "num_target_layers": None},
        TARGET,
        "its `eagle_aux_hidden_state_layer_ids` is `[9]`",
    ),
    (
        "P001",
        DFLASH | {"eagle_aux_hidden_state_layer_ids": [9], "num_target_layers": None},
        TARGET,
        "its `eagle_aux_hidden_state_layer_ids` is `[9]`",
    ),
    ("P001", DFLASH2 | {"hidden_size": 9}, TARGET, "its `hidden_size` is `9`"),
    ("P001", DFLASH2 | {"num_target_layers": 9}, TARGET, "its `num_target_layers` is `9`"),
    (
        "P001",
        NO_DEPTH | {"dflash_config": {"mask_token_id": 500, "target_layer_ids": [8]}},
        TARGET,
        "its `dflash_config.target_layer_ids` is `[8]`",
    ),
    (
        "P001",
        NO_DEPTH | {"eagle_aux_hidden_state_layer_ids": [9]},
        TARGET,
        "its `eagle_aux_hidden_state_layer_ids` is `[9]`",
    ),
    (
        "P001",
        speculators("dflash2", aux_hidden_state_layer_ids=[9]),
        TARGET,
        "its `aux_hidden_state_layer_ids` is `[9]`",
    ),
    (
        "C005",
        DSPARK | {"target_layer_ids": [1, 8]},
        TARGET,
        "`[1, 8]`, and the rest of the config asks for entries less than `num_target_layers` (8)",
    ),
    ("X008", KIMI_K3, KIMI_TARGET, "does not say how many tokens"),
    ("C002", DSPARK | {"block_size": "7"}, TARGET, '`block_size` is `"7"`'),
    ("C003", DFLASH | {"block_size": 1}, TARGET, "`block_size` is `1`, and only 2 or more"),
]


@pytest.mark.parametrize(("rule_id", "draft", "target", "says"), UNMET)
def test_what_vllm_would_run_in_another_way(
    rule_id: str, draft: Config, target: Config, says: str, tmp_path: Path
) -> None:
    decision = refusal(tmp_path, draft, target)

    assert rule_id == decision.rule_id
    assert says in decision.refusal.message


BY_RECIPE = [
    pytest.param(pair, id=f"{number}-{pair.rule_id}")
    for number, pair in enumerate(SERVED)
    if pair.target is not None and pair.rule_id != "R031"
]
"""The drafts with a checkpoint of their own."""


@pytest.mark.parametrize("pair", BY_RECIPE)
def test_a_draft_without_a_model_type_is_opened_by_no_class(pair: Pair, tmp_path: Path) -> None:
    draft = {key: each for key, each in pair.draft.items() if key != "model_type"}
    more = {"num_speculative_tokens": pair.asked}
    decision = dspark.route(write(tmp_path / "routed", draft))
    if "speculators_config" in draft:
        assert pair.method == hand_off(tmp_path, draft, pair.target, **more).method
        return
    if decision.rule.id != pair.rule_id:
        # The routing has an answer of its own.
        assert decision.rule.id in {"R000", "R005", "R018", "R019"}
        return

    refused = refusal(tmp_path, draft, pair.target, **more)

    assert "X004" == refused.rule_id
    assert "looks for `model_type`" in refused.refusal.message


@pytest.mark.parametrize("pair", BY_RECIPE)
def test_a_target_that_declares_no_architecture_has_no_draft(pair: Pair, tmp_path: Path) -> None:
    target = {**(pair.target or {}), "architectures": None}

    decision = refusal(tmp_path, pair.draft, target, num_speculative_tokens=pair.asked)

    assert "X007" == decision.rule_id
    assert decision.refusal.message.endswith(", and it is absent")


@pytest.mark.parametrize(("target", "unmets"), [(TARGET, 0), ({"model_type": None}, 1)])
def test_a_target_may_be_asked_for_any_model_type(target: Config, unmets: int) -> None:
    demand = Demand("target", ("model_type",), (), "", None, None, "handoff-target-family")

    found = unmet([demand], DSPARK, target, name="target", version="0.33")

    assert ["X007"] * unmets == [each.rule_id for each in found]
    assert all("whose model_type is set, and it is" in each.message for each in found)


def test_one_of_the_architectures_of_a_target_is_enough(tmp_path: Path) -> None:
    several = ["FooModel", *GEMMA4_TARGET["architectures"]]

    found = hand_off(tmp_path, GEMMA4_DRAFT, GEMMA4_TARGET | {"architectures": several})

    assert "dspark" == found.method


SIZED = [pair for pair in SERVED if pair.draft is not LAGUNA]
"""Laguna's drafts always say how many ids they propose."""


@pytest.mark.parametrize(
    "pair",
    [
        each
        for each in BY_RECIPE
        if each.id[-4:] not in ("R027", "R028", "R029") and each.values[0] in SIZED
    ],
)
def test_no_more_ids_than_the_targets_are_proposed(pair: Pair, tmp_path: Path) -> None:
    # The draft's ids are its `draft_vocab_size`, or else all it has.
    more = {"num_speculative_tokens": pair.asked}
    nested = "transformer_layer_config" in pair.draft
    inner = pair.draft["transformer_layer_config"] if nested else pair.draft
    inner = inner | {"vocab_size": 300_000}
    every = (pair.draft | {"transformer_layer_config": inner}) if nested else inner
    every |= {"draft_vocab_size": None}

    for number, (draft, key) in enumerate(
        (
            (every, "transformer_layer_config.vocab_size" if nested else "vocab_size"),
            (pair.draft | {"draft_vocab_size": 300_000}, "draft_vocab_size"),
        )
    ):
        decision = refusal(tmp_path / str(number), draft, pair.target, **more)

        assert "P001" == decision.rule_id
        assert f"its `{key}` is `300000`, and the target asks for " in decision.refusal.message


@pytest.mark.parametrize(
    "draft",
    [
        DSPARK | {"sample_from_anchor": False, "dspark_bonus_anchor": True},
        DSPARK | {"target_layer_ids": [-1, 4]},
        SPECULATORS | {"aux_hidden_state_layer_ids": [0, 4]},
        DSPARK | {"dspark_bonus_anchor": False},
        SPECULATORS | {"aux_hidden_state_layer_ids": [8]},
        DSPARK | {"target_layer_ids": [7]},
        DSPARK | {"markov_head_type": None},
    ],
)
def test_what_says_the_same_is_not_refused(draft: Config, tmp_path: Path) -> None:
    assert "dspark" == hand_off(tmp_path, draft).method


@pytest.mark.parametrize(
    ("rule_id", "routed", "draft", "says"),
    [
        (
            "X001",
            "R005",
            named("DSparkDraftModel", "llama"),
            "`DSparkDraftModel` with another model_type",
        ),
        ("X001", "R030", TARGET, "takes a language model too"),
        (
            "X001",
            "E101",
            {k: v for k, v in DSPARK.items() if k != "architectures"},
            "no architecture too",
        ),
        ("X002", "R018", named("Qwen3DSparkModel", "llama"), "for Qwen3 layers"),
        ("X002", "R026", DFLASH | {"selector_rank": 4}, "without its convolutions"),
        (
            "X002",
            "R001",
            SPECULATORS | {"architectures": ["Gemma4DSparkModel"]},
            "for a Qwen3 draft",
        ),
        ("X003", "R009", named("Lfm2DSparkDraftModel"), "no class for `Lfm2DSparkDraftModel`"),
        ("X003", "R028", named("Qwen3Eagle3Model"), "no class for `Qwen3Eagle3Model`"),
        (
            "X010",
            "R004",
            named("DSparkDraftModel", "deepseek_v4"),
            "DeepSeek target's own checkpoint",
        ),
        ("X013", "R015", DFLASH | {"markov_rank": 4}, "what `R015` found wrong"),
        ("X014", "R012", DSPARK | {"markov_rank": None}, "reads `markov_rank` when it builds"),
        ("X015", "R031", speculators("mtp"), "the Speculators type `mtp`"),
        ("X015", "R021", speculators("mlp"), "the Speculators type `mlp`"),
        ("X016", "R032", named("MedusaModel"), "no speculative method"),
        ("X017", "R000", named("NoSuchModel"), "what the rule `R000` decides"),
    ],
)
def test_what_vllm_would_take_for_something_else(
    rule_id: str, routed: str, draft: Config, says: str, tmp_path: Path
) -> None:
    decision = refusal(tmp_path, draft)

    assert (rule_id, routed) == (decision.rule_id, decision.rule.id)
    assert says in decision.refusal.message


def test_a_rule_of_another_table_has_no_hand_off(tmp_path: Path, repository: Path) -> None:
    rules = (repository / "rules/drafts.yaml").read_text("utf-8").replace("  L001:\n", "  L901:\n")
    file = tmp_path / "drafts.yaml"
    file.write_text(rules.replace("is: L001", "is: L901"), encoding="utf-8")

    decision = refusal(tmp_path, DSPARK, table=dspark.compile_table(file))

    assert "X017" == decision.rule_id
    assert "what the rule `L901` decides" in decision.refusal.message


@pytest.mark.parametrize("which", ["draft", "target"])
def test_what_cannot_be_read_is_an_input_error(which: str, tmp_path: Path) -> None:
    for name, config in (("draft", DSPARK), ("target", TARGET)):
        write(tmp_path / name, config)
    (tmp_path / which / "config.json").write_text("{", encoding="utf-8")

    with pytest.raises(Refused) as caught:
        dspark.hand_off(tmp_path / "draft", target=tmp_path / "target")

    assert ("E002", "observe") == (caught.value.decision.rule_id, caught.value.decision.stage)


@pytest.mark.parametrize(("asked", "rule_id"), [(6, "X009"), (5, None), (1, None)])
def test_a_draft_is_asked_for_no_more_than_it_proposes(
    asked: int, rule_id: str | None, tmp_path: Path
) -> None:
    if rule_id is None:
        assert (
            asked == hand_off(tmp_path, DSPARK, num_speculative_tokens=asked).num_speculative_tokens
        )
        return

    decision = refusal(tmp_path, DSPARK, num_speculative_tokens=asked)

    assert rule_id == decision.rule_id
    assert "6 draft tokens are asked for, and this draft proposes 5" == decision.refusal.message


def test_a_fixed_width_takes_no_other_number(tmp_path: Path) -> None:
    decision = refusal(tmp_path, SPECULATORS_OMNI, OMNI, num_speculative_tokens=4)

    assert "X009" == decision.rule_id


@pytest.mark.parametrize(
    ("word", "refused"), [("eagle-", 1), ("EAGLE3", 1), ("dflash", 1), ("dspark", 1), ("eagle", 0)]
)
def test_the_name_of_a_target_may_not_choose_the_method(
    word: str, refused: bool, tmp_path: Path
) -> None:
    draft = named("Glm4MoeMTPModel", "glm4_moe_mtp")
    folder = tmp_path / "models" / f"{word}x"

    if not refused:
        assert "mtp" == hand_off(folder, draft, MTP_TARGET).method
        return
    decision = refusal(folder, draft, MTP_TARGET)

    assert "X018" == decision.rule_id
    assert f"has `{word.lower()}` in it" in decision.refusal.message


@pytest.mark.parametrize(
    ("gpus", "nodes", "models"), [(3, 1, "target draft"), (2, 8, "target draft")]
)
def test_heads_are_shared_evenly_or_not_at_all(
    gpus: int, nodes: int, models: str, tmp_path: Path
) -> None:
    decision = refusal(tmp_path, DSPARK, gpus=gpus, nodes=nodes, master_address="host")

    assert ["X019"] * 2 == [finding.rule_id for finding in decision.findings]
    assert models.split() == [finding.values["model"] for finding in decision.findings]
    assert {gpus * nodes} == {finding.values["size"] for finding in decision.findings}


@pytest.mark.parametrize(
    ("heads", "gpus", "models"),
    [((40, 8), 5, "target draft"), ((40, 8), 20, "target draft"), ((48, 8), 16, ""),
     ((40, 8), 4, ""), ((40, None), 5, ""), ((40, 0), 5, "")],
)  # fmt: skip
@pytest.mark.parametrize("where", ["", "transformer_layer_config"])
def test_key_value_heads_are_shared_evenly_or_copied(
    where: str, heads: tuple[int, int | None], gpus: int, models: str, tmp_path: Path
) -> None:
    keys = {"num_attention_heads": heads[0], "num_key_value_heads": heads[1]}
    draft = DSPARK | keys if not where else SPECULATORS | {where: SPECULATORS[where] | keys}

    if not models:
        assert "dspark" == hand_off(tmp_path, draft, TARGET | keys, gpus=gpus).method
        return
    decision = refusal(tmp_path, draft, TARGET | keys, gpus=gpus)

    assert ["X019"] * 2 == [finding.rule_id for finding in decision.findings]
    assert models.split() == [finding.values["model"] for finding in decision.findings]
    assert f"{gpus} GPUs cannot share the 8 key-value heads of the target evenly" == (
        decision.findings[0].message
    )


def test_a_draft_inside_its_target_has_no_heads_to_share(tmp_path: Path) -> None:
    decision = refusal(tmp_path, DEEPSEEK_V4, None, gpus=3)

    assert ["target"] == [finding.values["model"] for finding in decision.findings]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"gpus": 0}, "`gpus` is a whole number"),
        ({"nodes": True}, "`nodes` is a whole number"),
        ({"num_speculative_tokens": 0}, "`num_speculative_tokens` is a whole number"),
        ({"backend": "mpi"}, "`backend` is `mp` or `ray`"),
        ({"nodes": 2}, "need `master_address`"),
    ],
)
def test_an_argument_that_means_nothing(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        hand_off(tmp_path, DSPARK, **more)


# ------------------------------------------------------------------- what the plugin asks for


@pytest.mark.parametrize(
    ("method", "tokens", "rule_id"),
    [("dspark", 5, None), ("dspark", 2, None), ("dspark", 6, "X009"), ("dflash", 5, "X020")],
)
def test_an_engine_is_held_to_method_and_number(
    method: str, tokens: int, rule_id: str | None, tmp_path: Path
) -> None:
    found = hand_off(tmp_path, DSPARK)

    if rule_id is None:
        found.confirm(method, tokens)
        return
    with pytest.raises(Refused) as caught:
        found.confirm(method, tokens)
    assert rule_id == caught.value.decision.rule_id


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("0.33", True),
        ("0.33.0", True),
        ("0.33.1", True),
        ("0.33.0+cu130", True),
        ("0.33+cpu", True),
        ("0.330", False),
        ("0.34.0", False),
        ("0.3", False),
        ("dev", False),
    ],
)
def test_which_versions_are_known(version: str, known: bool) -> None:
    warning = dspark.engine_warning(version)

    assert known == (warning is None)
    if warning is not None:
        assert "handoff-version-unknown" == warning.name
        assert f"vLLM {version} is none that the hand-off knows (0.33.x)" in warning.message


@pytest.mark.parametrize(
    ("draft", "blocks"),
    [
        (DSPARK, True),
        (named("K3DSparkModel"), True),
        (TARGET, False),
        (named("MedusaModel"), False),
    ],
)
def test_which_checkpoints_are_drafts_that_propose_blocks(
    draft: Config, blocks: bool, tmp_path: Path
) -> None:
    assert blocks == dspark.drafts_in_blocks(dspark.route(write(tmp_path, draft)))


def test_everyone_who_asked_is_told(tmp_path: Path) -> None:
    told: list[Any] = []
    stop = dspark.on_decision(told.append)
    try:
        found = hand_off(tmp_path, DSPARK)
        refused = refusal(tmp_path, TARGET)
    finally:
        stop()

    assert [found.decision, refused] == told
    assert "handoff" == json.loads(json.dumps(told[1].to_json()))["stage"]
