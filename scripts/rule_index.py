"""Writes docs/rules.md, every shipped rule in prose: `.venv/bin/python scripts/rule_index.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dspark
from dspark.condition import PRESENT, Condition, sort_cells
from dspark.rule import Rule

PAGE = Path(__file__).parent.parent / "docs" / "rules.md"

HEAD = """\
# Every rule

This page is generated from [rules/drafts.yaml](../rules/drafts.yaml) and
[rules/messages.yaml](../rules/messages.yaml) by `scripts/rule_index.py`; a test fails when it is
stale. What the words mean: [the rule language](rule-language.md). The same for one rule, on the
command line: `dspark explain ID`. What can be wrong with a checkpoint that has a lane is in
[rules/findings.yaml](../rules/findings.yaml).
"""

GROUPS = {
    "L": ("Lanes", "A checkpoint that one of these rules decides is taken."),
    "R": ("Refusals", "The config was read, and no lane here fits it."),
    "E": ("Inputs that no other rule can be asked about", "The exit code is 4 instead of 3."),
}


def rules_page() -> str:
    """The text of docs/rules.md for the rules that ship."""
    table = dspark.compile_table()
    rules = sorted([*table.rules.values(), *table.messages().values()])
    lines = [HEAD]
    for prefix, (title, note) in GROUPS.items():
        group = [rule for rule in rules if rule.id.startswith(prefix)]
        lines += [f"## {title}", "", note, "", "| ID | Name | Outcome |", "|---|---|---|"]
        lines += [f"| [{r.id}](#{_anchor(r)}) | `{r.name}` | {_outcome(r)} |" for r in group]
        lines.append("")
        for rule in group:
            lines += _section(rule, is_default=rule is table.default)
    tombs = sorted(table.retired.values())
    if tombs:
        lines += ["## Retired", "", "| ID | Name | Retired in | Use |", "|---|---|---|---|"]
        lines += [f"| {t.id} | `{t.name}` | {t.since} | {t.use or '-'} |" for t in tombs] + [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(rule: Rule, *, is_default: bool) -> Iterator[str]:
    yield f"### {rule.id} {rule.name}"
    yield ""
    for number, when in enumerate(rule.when):
        parts = [f"{fact} is {_prose(condition)}" for fact, condition in when.items()]
        yield f"- **{'When' if number == 0 else 'or when'}** {'; '.join(parts)}"
    if is_default:
        yield "- **When** no other rule of the table matches"
    if rule.before:
        yield f"- **Goes before** {', '.join(sorted(rule.before))}, where both match"
    if rule.lane is not None:
        yield f"- **Lane** `{rule.lane}`"
    if rule.refuse is not None:
        yield f"- **Says** {rule.refuse.text}"
    if rule.help is not None:
        yield f"- **Help** {rule.help.text}"
    yield f"- **Why** {rule.why}"
    if rule.refs:
        yield f"- **See** {', '.join(_reference(ref) for ref in rule.refs)}"
    yield ""


def _prose(condition: Condition) -> str:
    if condition == PRESENT:
        return "present"
    words = ["absent" if cell is None else f"`{cell}`" for cell in sort_cells(condition.cells)]
    text = " or ".join(words)
    if not condition.negated:
        return text
    return f"not {text}" if len(words) == 1 else f"neither {' nor '.join(words)}"


def _outcome(rule: Rule) -> str:
    return "refused" if rule.lane is None else f"lane `{rule.lane}`"


def _reference(ref: str) -> str:
    return f"<{ref}>" if ref.startswith("https://") else f"`{ref}`"


def _anchor(rule: Rule) -> str:
    return f"{rule.id} {rule.name}".lower().replace(" ", "-").replace(".", "")


if __name__ == "__main__":
    PAGE.write_text(rules_page(), encoding="utf-8")
