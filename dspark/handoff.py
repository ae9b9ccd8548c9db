"""A pair handed to another engine: the decision, as what that engine has to be started with."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dspark.checked import observed_config, refuse_if
from dspark.compiled import Table
from dspark.contract import Finding
from dspark.decision import Decision
from dspark.decision_log import announce
from dspark.errors import Refused
from dspark.findings import finding
from dspark.handed_over import STAGE, Backend, Cluster, HandOff, Placed, too_many
from dspark.handoff_demands import drafted, language_model, shared_heads, unmet, worded
from dspark.handoff_reader import handoff_table
from dspark.handoff_table import IN_TARGET, OF_TARGET, SEPARATE, Case, Recipe
from dspark.messages import quoted
from dspark.routing import Download, default_table, examine
from dspark.source import Source
from dspark.target import is_a_draft
from dspark.verdict import Verdict


def hand_off(
    checkpoint: str | os.PathLike[str],
    *,
    target: str | os.PathLike[str] | None = None,
    gpus: int = 1,
    nodes: int = 1,
    backend: Backend = "mp",
    master_address: str | None = None,
    num_speculative_tokens: int | None = None,
    table: Table | None = None,
    download: Download | None = None,
) -> HandOff:
    """How vLLM serves `checkpoint` as the draft of `target`, from their configs alone.

    `target` is left out for a draft that is a part of its target's checkpoint. `gpus` is how many
    each of the `nodes` has. `num_speculative_tokens` is needed only where the config does not say.

    Raises `Refused` with a `Verdict` where vLLM would not run the draft as what it is; ValueError
    for an argument that means nothing.
    """
    for name, number in (
        ("gpus", gpus),
        ("nodes", nodes),
        ("num_speculative_tokens", num_speculative_tokens),
    ):
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"`{name}` is a whole number of 1 or more")
    if backend not in ("mp", "ray"):
        raise ValueError("`backend` is `mp` or `ray`")
    if nodes > 1 and not master_address:
        raise ValueError("several nodes need `master_address`, where the first of them is reached")
    cluster = Cluster(gpus, nodes, backend, master_address if nodes > 1 else None)
    try:
        found = _Pair(table or default_table(), checkpoint, download).hand_off(
            target, cluster, num_speculative_tokens
        )
    except Refused as refusal:
        announce(refusal.decision)
        raise
    announce(found.decision)
    return found


def drafts_in_blocks(decision: Decision) -> bool:
    """Whether a checkpoint can be nothing but a draft that proposes a block at a time."""
    known = handoff_table()
    rule_id = decision.rule.id  # of the routing, whichever later stage refused
    return rule_id in known.rules and rule_id not in known.not_block


def engine_warning(version: str) -> Finding | None:
    """What has to be known before a vLLM of this version is handed to; None if all is known."""
    known = handoff_table()
    if known.covers(version):
        return None
    return finding("handoff-version-unknown", got=version, expected=f"{known.version}.x")


class _Pair:
    """The draft, and what the hand-off says of its rule."""

    def __init__(
        self, table: Table, checkpoint: str | os.PathLike[str], download: Download | None
    ) -> None:
        self.table = table
        self.download = download
        self.known = handoff_table()
        self.decision, self.place = self._examine(checkpoint)

    def hand_off(
        self, target: str | os.PathLike[str] | None, cluster: Cluster, asked: int | None
    ) -> HandOff:
        recipe = self._recipe()
        draft = observed_config(self.decision)
        model, config = self.decision, draft
        place = self.place
        if target is not None:
            model, place = self._examine(target)
            config = observed_config(model)
        self._refuse(self._misplaced(recipe, model, place, given=target is not None))
        stated = language_model(config) if recipe.draft == OF_TARGET else draft
        proposes, wrong = drafted(recipe.tokens, stated)
        served = _placed(place)
        version = self.known.version
        wrong += unmet(recipe.demands, draft, config, name=served.name, version=version)
        if asked is not None:
            wrong += too_many(recipe, asked, proposes)
        elif proposes is None and not wrong:
            wrong.append(finding("handoff-tokens-unstated", version=version))
        separate = recipe.draft == SEPARATE
        models = {"target": config, "draft": draft} if separate else {"target": config}
        wrong += shared_heads(cluster.size, models)
        self._refuse(wrong)
        tokens = asked or proposes
        assert tokens is not None  # INVARIANT: refused above where neither says
        return HandOff(
            self.decision,
            self.known,
            recipe,
            served,
            _placed(self.place) if separate else None,
            tokens,
            proposes,
            cluster,
        )

    def _examine(self, source: str | os.PathLike[str]) -> tuple[Decision, Source]:
        decision, place = examine(self.table, source, download=self.download)
        if decision.observation is None or place is None or decision.stage == "observe":
            raise Refused(Verdict(decision, stage=decision.stage, warnings=decision.warnings))
        return decision, place

    def _refuse(self, findings: Sequence[Finding]) -> None:
        if findings:
            refuse_if(self.decision, STAGE, findings, self.decision.warnings)

    def _recipe(self) -> Recipe:
        rule, version = self.decision.rule, self.known.version
        case = self._case()
        if case is None:
            self._refuse([finding("handoff-not-known", rule=rule.id, version=version)])
        elif case.finding:
            seen = self.decision.observation
            assert seen is not None  # INVARIANT: `_examine` refuses what could not be observed
            got = (
                seen.algorithm if case.finding == "handoff-no-type" else self.decision.architecture
            )
            values = {"version": version, "expected": case.because, "got": quoted(got)}
            self._refuse([worded(case.finding, rule=rule.id, **values)])
        assert case is not None  # INVARIANT: refused above
        return self.known.recipes[case.recipe]

    def _case(self) -> Case | None:
        """The first case of the draft's rule that its facts match."""
        seen = self.decision.observation
        assert seen is not None  # INVARIANT: `_examine` refuses what could not be observed
        facts = {**seen._asdict(), "architecture": self.decision.architecture}
        for case in self.known.rules.get(self.decision.rule.id, ()):
            if all(facts[fact] in cells for fact, cells in case.when.items()):
                return case
        return None

    def _misplaced(
        self, recipe: Recipe, model: Decision, place: Source, *, given: bool
    ) -> list[Finding]:
        """What is wrong with where the target is, before its config is looked at."""
        if recipe.draft == IN_TARGET:
            apart = given and not _same(place, self.place)
            return [finding("handoff-target-apart")] if apart else []
        if not given:
            return [finding("handoff-target-missing")]
        if is_a_draft(model) and model.facts.get("packaging") != "in-target":
            got = ", ".join(model.observation.architectures) if model.observation else ""
            return [finding("target-is-a-draft", key="architectures", got=got)]
        return []


def _placed(place: Source) -> Placed:
    if place.repo is not None:
        name, revision = place.repo
        return Placed(name, revision, local=False)
    if place.folder is None:
        raise ValueError("an engine opens a folder or a repo id, and standard input is neither")
    return Placed(os.path.abspath(place.folder), None, local=True)  # noqa: PTH100 - links are kept


def _same(first: Source, second: Source) -> bool:
    if first.folder is not None and second.folder is not None:
        return first.folder.resolve() == second.folder.resolve()
    return first.repo is not None and first.repo == second.repo
