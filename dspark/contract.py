"""What a lane demands of a checkpoint, as data: keys, checks between them, tensors, and the target.

`rules/lanes/<lane>.yaml` and `rules/targets/<family>.yaml` are read into these types by
`dspark.contract_reader`; nothing here reads a file. Every demand names the finding
(`rules/findings.yaml`) that reports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dspark.diagnostics import Place as FilePlace

Value = object
"""A canonical value: int, float, bool, str, a tuple of ints or of strings, or None."""


class KeyPlace(NamedTuple):
    """One way an exporter writes a key."""

    path: tuple[str, ...]
    """Steps into config.json; a step of digits indexes a list."""
    minus: int = 0
    """Taken from the number found, or from each of a list: Speculators count taps from 1."""
    negate: bool = False
    """The exporter writes the opposite of this boolean."""

    @property
    def dotted(self) -> str:
        return ".".join(self.path)


class Default(NamedTuple):
    """What a key that no place fills is; exactly one field is set unless `value` is the answer."""

    value: Value = None
    key: str = ""
    """Another key's value."""
    quotient: tuple[str, str] | None = None
    """One key divided by another: a default only where the division is exact."""
    fill: tuple[str, str] | None = None
    """A word, repeated as often as another key says."""
    by_rule: Mapping[str, Value] | None = None
    """By the name of the routing rule that led to the lane: exporters disagree on it."""
    tensor: str = ""
    """True if the weights hold this tensor, False if not, None where they are not there."""


class Key(NamedTuple):
    """One canonical key of the lane."""

    name: str
    type: str
    """`integer`, `number`, `boolean`, `text`, `integers` or `texts`. `true` is no integer, `7.0`
    and `"7"` are none either, and an integer is a number."""
    range: tuple[float, float] | None
    """Least and greatest value allowed, of each entry in a list."""
    places: tuple[KeyPlace, ...]
    default: Default | None
    """None: the key is required, and never inferred."""
    place: FilePlace


class Check(NamedTuple):
    """One demand on canonical keys or raw paths, from a closed vocabulary.

    kind, with the fields it uses (`key` is canonical, a path is raw and dotted):
        one-of        key, values            the value, or each entry of a list, is one of these
        length        key, other             a list has as many entries as another key says
        increasing    key                    a list rises strictly
        multiple      key, other             a number is a multiple of another key or of a literal
        below         key, other             a number, or each entry, is less than another key
        at-most       key, other             a number is not greater than another key
        equals        key, other             two values are equal
        requires      keys                   each of these is in the file and no default
        absent        keys                   none of these is in the file
        inert         paths, values          a raw value is absent, null or one of these
        differs       key, paths             the value is none of these raw values (for warnings)
    A key without a value has a finding of its own, or is None and then means nothing: a check of
    it demands nothing.
    """

    kind: str
    finding: str
    """The name of the finding it reports."""
    key: str = ""
    other: str = ""
    """Another key's name, or a literal integer as text; with `target.` in front, a key of the
    target (pairing checks only)."""
    keys: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    when: Mapping[str, Value] | None = None
    """Applies only where each of these keys has this value (a list key: holds it)."""
    place: FilePlace | None = None


class Dim(NamedTuple):
    """One dimension: a sum of products of keys, whole numbers and `count(key)`."""

    text: str
    terms: tuple[tuple[str, ...], ...]
    """Each term is a product of factors: a key's name, digits, or `count(key)`."""


class TensorSpec(NamedTuple):
    """One tensor, or one per layer, that the lane knows."""

    name: str
    """With `{layer}` if there is one for each of `repeat`."""
    repeat: str
    """The key that says how many; empty for a single tensor."""
    shape: tuple[Dim, ...]
    dtypes: tuple[str, ...]
    need: str
    """`required`, `optional`, `ignored`, or `shared`: the target's own is used if it is absent."""
    when: Mapping[str, Value] | None
    place: FilePlace


class Rename(NamedTuple):
    """A prefix some exporters write, and what it stands for."""

    prefix: str
    stands_for: str


class Contract(NamedTuple):
    """Everything a lane, or a target family, demands."""

    name: str
    model: str
    """The implementation that runs it, by its registered name."""
    keys: Mapping[str, Key]
    checks: tuple[Check, ...]
    pairing: tuple[Check, ...]
    tensors: tuple[TensorSpec, ...]
    renames: tuple[Rename, ...]
    known: frozenset[str]
    """Top-level config keys that mean nothing to the lane; any other unread key is a warning."""
    drafts: Mapping[bool, Dim] | None
    """Drafts per round for sample_from_anchor true and false; None for a target."""
    file: str


class TargetContract(NamedTuple):
    """A target family's contract, and how its members are told from other families."""

    contract: Contract
    architecture: str
    """What a member declares."""
    model_type: str
    """The model type that goes with it."""
    families: Mapping[str, str]
    """Architecture -> the family it belongs to, in words, for architectures that are refused."""


class Finding(NamedTuple):
    """One thing that is wrong with a checkpoint, or a warning about it."""

    rule_id: str
    name: str
    message: str
    help: str
    values: Mapping[str, object]
    """What the message quotes: `key` or `tensor`, `expected`, `got`, ..."""
    warning: bool = False

    def to_json(self) -> dict[str, object]:
        return {
            "rule_id": self.rule_id,
            "name": self.name,
            "message": self.message,
            "help": self.help,
            "values": dict(self.values),
        }


class Canonical(NamedTuple):
    """A config read by its contract: every key with its value and where the value came from."""

    values: Mapping[str, Value]
    origins: Mapping[str, str]
    """Key -> the dotted path it was read from, or where its default came from: `default`,
    `default: <key, quotient or tensor>`, `default of <rule name>`; or `computed`."""
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
