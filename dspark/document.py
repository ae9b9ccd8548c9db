"""A YAML file as nodes that know their place, with everything ambiguous refused.

Scalars stay the text the author typed: `no`, `1_0` and `3.10` are what they look like. Duplicate
keys, anchors, aliases, tags and second documents are diagnostics, because YAML would resolve each
of them silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from dspark.diagnostics import Note, Place, Report
from dspark.spelling import did_you_mean, nearest

try:
    from yaml import cyaml

    _CParser: Any = cyaml.CParser  # type: ignore[attr-defined]
except ImportError:  # PyYAML was built without libyaml: same nodes, about ten times slower
    _CParser = None

_MERGE = "<<"

_DEEPEST = 100
"""Levels of a test's input: more than a config.json may have, far fewer than the reader's stack."""
# What could be an anchor, an alias or a tag, so that most files need not be scanned twice: after a
# letter, a digit, a full stop or a backtick each of the three signs is part of a longer text.
_MAYBE_FEATURE = re.compile(r"(?<![\w.`])[&*!]")


class _Untyped:
    """Stands in for PyYAML's resolver, which would compute a tag that nobody reads per node."""

    def resolve(self, kind: object, value: object, implicit: object) -> str:  # noqa: ARG002
        return ""

    def descend_resolver(self, node: object, index: object) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


class _PureLoader(Reader, Scanner, Parser, Composer, _Untyped):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)


def _loader_class() -> Any:
    if _CParser is None:
        return _PureLoader

    class _FastLoader(_CParser, _Untyped):  # type: ignore[misc]
        pass

    return _FastLoader


class Document:
    """One parsed file and the report its problems go to."""

    def __init__(
        self, data: bytes, file: str, report: Report, guide: str = "docs/rule-language.md"
    ) -> None:
        self.file = file
        self.guide = guide
        """The page that gives the shapes."""
        self.report = report
        self.root: Node | None = None
        try:
            self.root = self._compose(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            report.add("yaml-syntax", Place(file, line, 1), problem="the file is not UTF-8")

    def _compose(self, text: str) -> Node | None:
        loader_class = _loader_class()
        try:
            if _MAYBE_FEATURE.search(text) and self._refuse_features(loader_class, text):
                return None  # resolving them could take forever
            root = loader_class(text).get_single_node()
            assert root is None or isinstance(root, Node)  # INVARIANT: what PyYAML documents
            return root
        except yaml.MarkedYAMLError as error:
            place = self._at(error.problem_mark or error.context_mark)
            notes: tuple[Note, ...] = ()
            problem = error.problem or str(error.context)
            if error.problem and error.context and error.context.startswith("expected"):
                problem = f"{error.context}, {error.problem}"
            elif error.context and error.context_mark:
                notes = (Note(self._at(error.context_mark), error.context),)
            self.report.add("yaml-syntax", place, problem=problem, notes=notes)
        except yaml.YAMLError as error:
            self.report.add("yaml-syntax", Place(self.file, 1, 1), problem=str(error))
        except RecursionError:
            self.report.add("yaml-syntax", Place(self.file, 1, 1), problem="nested too deeply")
        return None

    def _refuse_features(self, loader_class: Any, text: str) -> bool:
        found = len(self.report)
        loader = loader_class(text)
        while loader.check_event():
            event = loader.get_event()
            feature = None
            if isinstance(event, yaml.AliasEvent):
                feature = f"an alias (`*{event.anchor}`)"
            elif getattr(event, "anchor", None):
                feature = f"an anchor (`&{event.anchor}`)"
            elif getattr(event, "tag", None):
                feature = f"a tag (`{event.tag.replace('tag:yaml.org,2002:', '!!')}`)"
            if feature is not None:
                self.report.add("yaml-feature", self._at(event.start_mark), feature=feature)
        return len(self.report) > found

    def _at(self, mark: yaml.Mark | None) -> Place:
        return Place(self.file, mark.line + 1, mark.column + 1) if mark else Place(self.file, 1, 1)

    def place(self, node: Node) -> Place:
        start, end = node.start_mark, node.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Place(self.file, start.line + 1, start.column + 1, max(length, 1))

    def mapping(self, node: Node | None, what: str) -> dict[str, tuple[ScalarNode, Node]]:
        """Key text -> (key node, value node); duplicate and non-text keys are reported."""
        if not isinstance(node, MappingNode):
            if node is not None:
                self.wrong(node, what, "a mapping")
            return {}
        found: dict[str, tuple[ScalarNode, Node]] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.wrong(key, f"a key of {what}", "plain text")
                continue
            name = key.value
            if name == _MERGE:
                self.report.add("yaml-feature", self.place(key), feature="a merge key (`<<`)")
            elif name in found:
                first = self.place(found[name][0])
                self.report.add("duplicate-key", self.place(key), key=name, first_line=first.line)
            else:
                found[name] = (key, value)
        return found

    def fields(
        self,
        node: Node | None,
        what: str,
        allowed: Iterable[str],
        required: Iterable[str] = (),
        place: Place | None = None,
    ) -> dict[str, Node]:
        """The values of a mapping whose keys are a closed list; the rest are reported.

        A misspelt key is reported and then read as what was meant, or every use of it would be
        reported too.
        `place` is where a missing key is reported, by default where the mapping starts.
        """
        allowed = tuple(allowed)
        found = self.mapping(node, what)
        for name, (key, value) in list(found.items()):
            if name not in allowed:
                found.setdefault(nearest(name, frozenset(allowed)) or name, (key, value))
                self.report.add(
                    "unknown-key",
                    self.place(key),
                    key=name,
                    what=what,
                    hint=did_you_mean(name, allowed) or f"use one of {', '.join(allowed)}",
                )
        if isinstance(node, MappingNode):
            for name in required:
                if name not in found:
                    start = place or self.place(node)
                    self.report.add("missing-table-key", start, key=name, what=what)
        return {name: value for name, (_, value) in found.items() if name in allowed}

    def text(self, node: Node, what: str) -> str | None:
        """The scalar's text, or None (reported) if it is not a non-empty scalar."""
        if isinstance(node, ScalarNode) and node.value.strip():
            return str(node.value)
        self.wrong(node, what, "non-empty text")
        return None

    def items(self, node: Node, what: str) -> Iterator[Node]:
        """The entries of a sequence; a scalar counts as one entry."""
        if isinstance(node, SequenceNode):
            yield from node.value
        elif isinstance(node, ScalarNode):
            yield node
        else:
            self.wrong(node, what, "a list")

    def texts(self, node: Node | None, what: str) -> Iterator[str]:
        """The texts of a list, or of a scalar as one entry; what is no text is reported."""
        for entry in self.items(node, what) if node is not None else ():
            text = self.text(entry, f"an entry of {what}")
            if text is not None:
                yield text

    def wrong(self, node: Node, what: str, wanted: str, found: str = "") -> None:
        """Reports that `node` is not what is `wanted` there; `found` is its kind, if not given."""
        if not found and isinstance(node, MappingNode | SequenceNode):
            found = "a mapping" if isinstance(node, MappingNode) else "a list"
            found = found if node.value else found.replace("a ", "an empty ")
        elif not found:
            found = "text" if node.value.strip() else "nothing"
        self.report.add(
            "wrong-shape",
            self.place(node),
            what=what,
            wanted=wanted,
            found=found,
            guide=self.guide,
        )

    def data(self, node: Node, depth: int = 0) -> Any:
        """The node as plain data, with JSON's own scalars (`null`, `true`, `7`, `1.5`) typed.

        Used for test inputs, which are config.json fragments; quoted scalars stay text.
        """
        if depth > _DEEPEST:
            self.wrong(node, "the input of a test", f"at most {_DEEPEST} levels deep", "deeper")
            return None
        depth += 1
        if isinstance(node, MappingNode):
            found = self.mapping(node, "the input of a test")
            return {key: self.data(value, depth) for key, (_, value) in found.items()}
        if isinstance(node, SequenceNode):
            return [self.data(entry, depth) for entry in node.value]
        assert isinstance(node, ScalarNode)  # INVARIANT: YAML has three kinds of node
        return node.value if node.style else _json_scalar(node.value)


def _json_scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return text


_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}
