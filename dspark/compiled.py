"""A compiled table: proved, and ready to decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dspark.decision import Decision, Refusal, Step
from dspark.errors import Unreadable
from dspark.facts import FACTS, Cell
from dspark.graph import Built, decide
from dspark.messages import quoted
from dspark.observe import Config, Observation, kind, observe_config
from dspark.rule import Retired, Rule
from dspark.spelling import did_you_mean

if TYPE_CHECKING:
    from dspark.contract import Finding

_FIELD = {name: Observation._fields.index(name) for name in FACTS if name != "architecture"}


class Table(NamedTuple):
    """Rules that have been proved total, unambiguous and alive, and the graph that decides them.

    Build one with `dspark.compile_table(path)`.
    """

    file: str
    name: str
    version: str
    facts: tuple[str, ...]
    lanes: tuple[str, ...]
    rules: Mapping[str, Rule]
    default: Rule
    retired: Mapping[str, Retired]
    built: Built
    architectures: frozenset[str]
    """Every architecture a rule names: the entries of a list that are decided at all."""
    messages: Callable[[], Mapping[str, Rule]]
    """Name -> `E` rule, for inputs the graph cannot be asked about."""
    notice: Callable[[str | None, Config], tuple[Finding, ...]]
    """Lane or None, and config -> warnings of it, for whoever shows the decision."""

    def __repr__(self) -> str:
        return f"<Table {self.name} {self.version}: {len(self.rules)} rules>"

    def route(self, config: Config, source: str = "<mapping>") -> Decision:
        """The decision for a parsed config.json. Never raises for its content."""
        try:
            if not isinstance(config, Mapping):
                raise Unreadable("config-not-object", found=kind(config))
            observation = observe_config(config)
        except Unreadable as problem:
            return self.unreadable(problem, source)
        return self.decide(observation, source)

    def decide(self, observation: Observation, source: str = "<mapping>") -> Decision:
        """The decision for facts that have been observed.

        Each entry of `architectures` that a rule names is decided; entries no rule names count
        only when there is no other. Entries that two rules decide refuse the checkpoint, even if
        both lead to one lane: the rules may stand for different layouts of the block.
        """
        entries = observation.architectures
        architecture = entries[0] if entries else None
        root = self.built.root
        if len(entries) > 1:
            named = [entry for entry in entries if entry in self.architectures]
            architecture = named[0] if named else entries[0]
            rule = decide(root, self.cells(observation, architecture))
            for entry in named[1:]:
                other = decide(root, self.cells(observation, entry))
                if other is not rule:
                    pair = {"first": architecture, "first_rule": rule.id}
                    pair |= {"second": entry, "second_rule": other.id}
                    return self.unreadable(
                        Unreadable("architectures-conflict", **pair), source, observation
                    )
        else:
            rule = decide(root, self.cells(observation, architecture))
        refusal = None
        if rule.refuse is not None:
            values = self._values(rule, observation, architecture)
            help_text = rule.help.render(values) if rule.help else ""
            refusal = Refusal(rule.refuse.render(values), help_text)
        return Decision(
            source=source,
            rule=rule,
            refusal=refusal,
            stage="route",
            table=self,
            observation=observation,
            architecture=architecture,
        )

    def unreadable(
        self, problem: Unreadable, source: str, observation: Observation | None = None
    ) -> Decision:
        """The decision for an input that no rule could be asked about."""
        rule = self.messages()[problem.rule_name]
        assert rule.refuse is not None  # INVARIANT: messages.yaml holds refusals only
        help_text = rule.help.render(problem.values) if rule.help else ""
        return Decision(
            source=source,
            rule=rule,
            refusal=Refusal(rule.refuse.render(problem.values), help_text),
            stage="observe",
            table=self,
            observation=observation,
            architecture=None,
        )

    def cells(self, observation: Observation, architecture: Cell) -> tuple[Cell, ...]:
        """The cells of one architecture entry, in this table's fact order."""
        return tuple(
            architecture if fact == "architecture" else observation[_FIELD[fact]]  # type: ignore[misc]
            for fact in self.facts
        )

    def path(self, cells: Sequence[Cell]) -> tuple[Step, ...]:
        """The nodes that `decide` passes for these cells."""
        steps = []
        node = self.built.root
        while not isinstance(node, Rule):
            index, branches, other = node
            cell = cells[index]
            fact = self.facts[index]
            named = fact != "architecture" or cell is None or cell in self.architectures
            steps.append(Step(fact, cell, named))
            node = branches.get(cell, other)
        return tuple(steps)

    def _values(
        self, rule: Rule, observation: Observation, architecture: Cell
    ) -> Mapping[str, object]:
        assert rule.refuse is not None  # INVARIANT: only refusals have values to fill in
        fields = rule.refuse.fields + (rule.help.fields if rule.help else ())
        values: dict[str, object] = {}
        for field in fields:
            if field == "architectures":
                entries = observation.architectures
                values[field] = ", ".join(quoted(entry) for entry in entries) or "absent"
            elif field == "architecture":
                values[field] = quoted(architecture)
            elif field == "markov_rank":
                values[field] = quoted(observation.origins.get("markov", (None, None))[1])
            elif field == "did_you_mean":
                entries = observation.architectures
                hints = (did_you_mean(entry, self.architectures) for entry in entries)
                hint = next(filter(None, hints), "")
                values[field] = f"; {hint}" if hint else ""
            else:
                values[field] = quoted(observation[_FIELD[field]])
        return values
