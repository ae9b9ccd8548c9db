"""The graph decides what the rules say, and what it proves about them is so."""

from __future__ import annotations

import json
import random
import sys
import tracemalloc
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dspark import analyse, graph
from dspark.compile import compile_table, compile_text, read_messages
from dspark.compiled import Table
from dspark.condition import PRESENT, Condition
from dspark.diagnostics import Report
from dspark.facts import ABSENT, ALONE, FACTS, OTHER, Cell
from dspark.graph import Built, build, decide, walk
from dspark.graph_text import graph_text
from dspark.observe import observe_config
from dspark.rule import Rule
from tests.support.tables import (
    NAMES,
    RandomTable,
    every_cell,
    make_rule,
    naive,
    naive_matches,
    observation,
    tables,
)

ALL_FACTS = tuple(FACTS)


def built(table: RandomTable) -> Built:
    return build(table.facts, tuple(table.rules.values()), table.default)


def compiled(table: RandomTable) -> Table:
    return Table(
        file="table.yaml",
        name="random",
        version="0",
        facts=table.facts,
        lanes=(),
        rules={**table.rules, table.default.id: table.default},
        default=table.default,
        retired={},
        built=built(table),
        architectures=frozenset(
            cell
            for rule in table.rules.values()
            for when in rule.when
            for cell in (when["architecture"].cells if "architecture" in when else ())
            if cell is not None
        ),
        messages=read_messages,
        notice=lambda *_: (),
    )


def clashing(table: RandomTable) -> bool:
    return any(naive(table, cells) is None for cells in every_cell(table.facts, table))


# ------------------------------------------------------------------------------ what it decides


@given(tables())
def test_the_graph_decides_as_the_rules_say(table: RandomTable) -> None:
    root = built(table).root

    for cells in every_cell(table.facts, table):
        expected = naive(table, cells)
        if expected is not None:
            assert expected is decide(root, tuple(cells.values()))


@given(tables(("architecture", "markov")), st.data())
def test_a_list_of_architectures_is_decided_entry_by_entry(
    table: RandomTable, data: st.DataObject
) -> None:
    assume(not clashing(table))
    strangers = ("Delta", "Epsilon")
    entries = data.draw(st.lists(st.sampled_from((*NAMES, *strangers)), min_size=2, unique=True))
    markov = data.draw(st.sampled_from(FACTS["markov"].cells or ()))
    whole = compiled(table)

    named = [entry for entry in entries if entry in whole.architectures]
    answers = [
        naive(table, {"architecture": entry, "markov": markov}) for entry in named or entries[:1]
    ]
    ids = {answer.id for answer in answers if answer}

    assert ({"E103"} if len(ids) > 1 else ids) == {
        whole.decide(observation({"markov": markov}, entries)).rule_id
    }


def test_a_list_of_architectures_reaches_every_answer() -> None:
    """What the property above would have to find by chance."""
    rules = [
        make_rule("L001", [{"architecture": Condition(frozenset({"Alpha", "Aleph"}))}], "one"),
        make_rule("L002", [{"architecture": Condition(frozenset({"Beta"}))}], "one"),
        make_rule("R001", [{"architecture": Condition(frozenset({"Gamma"}))}]),
    ]
    table = compiled(
        RandomTable(("architecture",), {r.id: r for r in rules}, make_rule("R000", ()))
    )

    def answer(*entries: str) -> str:
        return table.decide(observation({}, entries)).rule_id

    assert ["L001", "L001", "L001", "L002"] == [
        answer("Alpha"),
        answer("Aleph", "Alpha"),
        answer("Delta", "Alpha"),
        answer("Beta", "Delta"),
    ]
    # The same lane by two rules is a conflict too: they may stand for different layouts.
    assert ["E103", "E103", "R001", "R000", "R000"] == [
        answer("Alpha", "Beta"),
        answer("Alpha", "Gamma"),
        answer("Gamma", "Delta"),
        answer("Delta", "Epsilon"),
        answer(),
    ]


@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_the_rules_changes_no_decision(
    table: RandomTable, shuffle: random.Random
) -> None:
    ids = list(table.rules)
    shuffle.shuffle(ids)
    shuffled = table._replace(rules={rule_id: table.rules[rule_id] for rule_id in ids})
    first, second = built(table), built(shuffled)

    assert bool(first.clashes) == bool(second.clashes)
    for cells in every_cell(table.facts, table):
        values = tuple(cells.values())
        assert decide(first.root, values) is decide(second.root, values)


# ------------------------------------------------------------------------------- what it proves


@given(tables())
def test_every_problem_is_found_and_nothing_else(table: RandomTable) -> None:
    report = Report()
    analyse.prove(table.source(), built(table), report)
    found = {
        kind: {d.message.split("`")[1] for d in report.diagnostics() if d.name == kind}
        for kind in ("overlap", "dead-rule", "shadowed-rule", "gap")
    }

    matched: set[str] = set()
    winners: set[str] = set()
    clash = False
    for cells in every_cell(table.facts, table):
        matched |= naive_matches(table, cells)
        winner = naive(table, cells)
        clash = clash or winner is None
        winners |= {winner.id} if winner else set()

    assert clash == bool(found["overlap"])
    assert set() == found["gap"]
    if not clash:
        assert set(table.rules) - matched == found["dead-rule"]
        assert matched - winners == found["shadowed-rule"]


@given(tables())
def test_a_table_without_a_default_has_a_gap_exactly_where_no_rule_matches(
    table: RandomTable,
) -> None:
    report = Report()
    nothing = table.default._replace(id="")
    proof = build(table.facts, tuple(table.rules.values()), nothing)
    analyse.prove(table.source()._replace(default="", rules=table.rules), proof, report)
    found = {d.name for d in report.diagnostics()} & {"gap", "missing-table-key"}

    open_cells = any(not naive_matches(table, cells) for cells in every_cell(table.facts, table))

    assert ({"gap"} if open_cells else {"missing-table-key"}) == found


@given(tables())
def test_every_witness_of_a_clash_or_a_winner_is_one(table: RandomTable) -> None:
    proof = built(table)

    for clash in proof.clashes:
        cells = dict(zip(table.facts, clash.cells, strict=True))
        assert {clash.first.id, clash.second.id} <= naive_matches(table, cells)
        assert naive(table, cells) is None
    for rule_id, path in proof.winners.items():
        winner = naive(table, dict(zip(table.facts, path, strict=True)))
        assert winner is None or rule_id == winner.id
    for loser, over in proof.matched.items():
        for winner_id, path in over.items():
            cells = dict(zip(table.facts, path, strict=True))
            assert {loser, winner_id} <= naive_matches(table, cells)


@given(tables())
def test_a_before_is_idle_exactly_when_the_two_never_meet(table: RandomTable) -> None:
    report = Report()
    analyse.prove(table.source(), built(table), report)
    idle = {
        (message[1], message[3])
        for message in (
            d.message.split("`") for d in report.diagnostics() if d.name == "idle-before"
        )
    }

    meet = {
        (rule.id, other)
        for cells in every_cell(table.facts, table)
        for rule in table.rules.values()
        for other in rule.before
        if {rule.id, other} <= naive_matches(table, cells)
    }

    assert {(r.id, other) for r in table.rules.values() for other in r.before} - meet == idle


def test_a_before_that_only_settles_what_a_third_rule_wins_is_not_idle() -> None:
    """L002 gives way to L001, and still keeps R003 from clashing with them both."""
    anything: Mapping[str, Condition] = {"markov": PRESENT}
    rules = {
        "L001": make_rule("L001", [anything], "one"),
        "L002": make_rule("L002", [anything], "one", ["R003"]),
        "R003": make_rule("R003", [anything]),
    }
    table = RandomTable(("markov",), rules, make_rule("R000", ()))
    report = Report()

    analyse.prove(table.source(), built(table), report)

    assert {"L001"} == {decide(built(table).root, (cell,)).id for cell in ("positive", "zero")}
    assert "idle-before" not in {d.name for d in report.diagnostics()}


def test_a_gguf_file_has_no_other_fact() -> None:
    """A rule for a GGUF file with an architecture is dead, and one without is not."""
    gguf = Condition(frozenset({"gguf"}))
    rules = {
        "R001": make_rule("R001", [{"packaging": gguf, "markov": PRESENT}]),
        "R002": make_rule("R002", [{"packaging": gguf, "markov": Condition(frozenset({ABSENT}))}]),
    }
    table = RandomTable(("packaging", "markov"), rules, make_rule("R000", ()))
    assert ALONE == ("packaging", "gguf")

    proof = built(table)

    assert {"R000", "R002"} == set(proof.winners)
    assert "R002" == decide(proof.root, ("gguf", None)).id


def test_a_closed_fact_has_no_cell_that_is_not_listed() -> None:
    """`packaging: PRESENT` leaves nothing out: packaging is never ABSENT."""
    facts = ("packaging",)
    none_left = Condition(frozenset(FACTS["packaging"].cells or ()), negated=True)
    table = RandomTable(
        facts,
        {
            "L001": make_rule("L001", [{"packaging": PRESENT}], "one"),
            "R002": make_rule("R002", [{"packaging": none_left}]),
        },
        make_rule("R000", ()),
    )
    assert {"flat", "nested", "speculators", "in-target", "gguf"} == set(
        FACTS["packaging"].cells or ()
    )

    assert {"L001"} == set(built(table).winners)


@given(
    st.sampled_from(FACTS["packaging"].cells or ()),
    st.sampled_from((*NAMES, OTHER, ABSENT)),
    st.sampled_from((*NAMES, OTHER, ABSENT)),
    st.sampled_from((*NAMES, OTHER, ABSENT)),
    st.sampled_from(FACTS["markov"].cells or ()),
)
def test_a_witness_config_has_exactly_the_cells_it_shows(
    packaging: Cell, algorithm: Cell, architecture: Cell, model_type: Cell, markov: Cell
) -> None:
    cells = (packaging, algorithm, architecture, model_type, markov)

    config = analyse.witness(ALL_FACTS, cells)

    if packaging == "gguf":
        assert config is None
        return
    assert config is not None
    assert json.loads(analyse.show(ALL_FACTS, cells)) == config
    seen = observe_config(config)
    assert () == seen.architectures[1:]
    entry = seen.architectures[0] if seen.architectures else None
    assert cells == (seen.packaging, seen.algorithm, entry, seen.model_type, seen.markov)


# -------------------------------------------------------------------------------- what it costs


def shipped_cells(table: Table) -> list[tuple[Cell, ...]]:
    named = RandomTable(table.facts, dict(table.rules), table.default)
    return [tuple(cells.values()) for cells in every_cell(table.facts, named)]


def test_the_shipped_graph_decides_every_cell_as_the_rules_say() -> None:
    table = compile_table()
    named = RandomTable(table.facts, dict(table.rules), table.default)
    cells = list(every_cell(table.facts, named))
    sample = random.Random(11).sample(cells, 4000)

    assert 10_000 < len(cells)
    for some in sample:
        assert naive(named, some) is decide(table.built.root, tuple(some.values()))


def test_a_decision_allocates_nothing() -> None:
    table = compile_table()
    root = table.built.root
    prepared = random.Random(3).choices(shipped_cells(table), k=10_000)
    for cells in prepared[:100]:
        decide(root, cells)

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for cells in prepared:
            decide(root, cells)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # One block's worth: the interpreter's own frame, kept for the next call.
    assert peak - before < 600


def test_a_decision_leaves_nothing_behind() -> None:
    table = compile_table()
    root = table.built.root
    prepared = random.Random(3).choices(shipped_cells(table), k=10_000)
    kept = [decide(root, cells) for cells in prepared]

    before = sys.getallocatedblocks()
    for cells in prepared:
        decide(root, cells)
    after = sys.getallocatedblocks()

    assert after - before < 50
    assert all(any(rule is other for other in table.rules.values()) for rule in kept[:200])


def shape(node: graph.Node, shapes: dict[int, str]) -> str:
    if isinstance(node, Rule):
        return node.id
    if id(node) not in shapes:
        index, branches, other = node
        parts = [f"{cell!r}:{shape(child, shapes)}" for cell, child in branches.items()]
        shapes[id(node)] = f"{index}({','.join(parts)};{shape(other, shapes)})"
    return shapes[id(node)]


@given(tables())
def test_equal_sub_graphs_are_one_object(table: RandomTable) -> None:
    nodes = [node for node in walk(built(table).root) if not isinstance(node, Rule)]
    shapes: dict[int, str] = {}

    texts = [shape(node, shapes) for node in nodes]

    assert len(set(texts)) == len(texts)
    for _, branches, other in nodes:
        assert branches
        assert all(child is not other for child in branches.values())


def wide(count: int) -> RandomTable:
    """As a real table grows: names and types of its own, some names shared by several rules."""
    rules = {}
    for number in range(count):
        when = {
            "architecture": Condition(frozenset({f"Model{number // 3}"})),
            "model_type": Condition(frozenset({f"type{number}"})),
            "markov": Condition(frozenset({"positive" if number % 5 else "zero"})),
        }
        rule = make_rule(f"L{number:05}", [when], f"lane{number % 7}")
        rules[rule.id] = rule
    return RandomTable(ALL_FACTS, rules, make_rule("R000", ()))


def test_twice_the_rules_are_about_twice_the_nodes_and_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    for count in (2500, 5000, 10_000):
        monkeypatch.setattr(graph, "LARGEST", 5 * count)  # branches looked at while it is built
        sizes.append(sum(1 for _ in walk(built(wide(count)).root)))

    assert sizes[1] <= 2.2 * sizes[0]
    assert sizes[2] <= 2.2 * sizes[1]


def test_cells_that_leave_the_same_rules_in_question_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = Condition(frozenset(f"Name{number}" for number in range(100)))
    when = {"algorithm": many, "architecture": many}
    rules = {"R001": make_rule("R001", [when])}
    table = RandomTable(("algorithm", "architecture"), rules, make_rule("R000", ()))

    monkeypatch.setattr(graph, "LARGEST", 250)

    assert "R001" == decide(built(table).root, ("Name3", "Name99")).id


def test_ten_thousand_rules_compile() -> None:
    rules = []
    for number in range(10_000):
        fragment = (
            f"{{architectures: [Model{number // 3}], model_type: type{number % 3}, markov_rank: 8}}"
        )
        rules.append(
            f"  L{number:05}:\n"
            f"    name: model-{number}\n"
            f"    when: {{architecture: Model{number // 3}, model_type: type{number % 3}, "
            "markov: positive}\n"
            f"    lane: lane{number % 7}\n"
            "    why: it was published\n"
            f"    tests:\n      - hit: {fragment}\n        lane: lane{number % 7}\n"
        )
    lanes = "".join(f"  lane{number}: a lane\n" for number in range(7))
    text = (
        "table: wide\nfacts: [architecture, model_type, markov]\ndefault: R000\n"
        f"lanes:\n{lanes}rules:\n{''.join(rules)}"
        "  R000:\n    name: no-rule\n    refuse: no rule decides\n    why: nothing matched\n"
        "    tests:\n      - hit: {architectures: [Other]}\n        says: no rule decides\n"
    )

    table = compile_text(text.encode(), "wide.yaml")

    assert 10_001 == len(table.rules)
    config = {"architectures": ["Model3333"], "model_type": "type0", "markov_rank": 8}
    assert ("L09999", 3) == (table.route(config).rule_id, len(table.route(config).path))
    assert 10_000 < graph_text(table, "text").count("\n")


def test_a_table_that_multiplies_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "LARGEST", 1000)
    facts = ("algorithm", "architecture", "model_type")
    when = [
        {fact: Condition(frozenset({f"N{n}"}), negated=True) for fact in facts} for n in range(20)
    ]
    table = RandomTable(facts, {"R001": make_rule("R001", when)}, make_rule("R000", ()))

    with pytest.raises(graph.TooLarge):
        built(table)
