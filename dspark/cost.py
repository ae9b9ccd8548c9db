"""What one round of a pair reads and writes in memory, and how many kernels it launches.

At few rows a decoder waits for memory: its weights are read once for all rows of a pass, its caches
once for all rows of a request. So bytes over bandwidth is a floor under the time of a round that
nothing gets below. The sizes are those of the plan's tensors and configs. Activations are left out:
they are thousandths of the weights and stay in a cache of the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from dspark.budget import DTYPES
from dspark.contract_reader import load_target_contract
from dspark.match_tensors import needed_shapes

if TYPE_CHECKING:
    from dspark.load_plan import LoadPlan, Model, TensorPlace

PRODUCTS = ("query, key, value", "output", "gate, up", "down")
"""The products of one decoder layer: one launch each for every 16 rows."""
LAYER = ("norm", "norm, rotation, append", "attention", "sum over splits", "norm")
"""Its other kernels; sums and gates are part of the product before them."""
CONFIDENCE = ("confidence", "cut")
"""Those of a confidence head, for all slots at once, where an engine listens to it."""
BOOKKEEPING = ("count drafts", "accept", "commit")
"""Those that keep a round on the device, whatever was accepted."""

_TOGETHER = 16
"""Rows of a product, and requests of a step along the block, that one launch takes."""


class Traffic(NamedTuple):
    """Bytes moved and kernels launched by one part of a round."""

    weights: int
    """Weights read, every one as often as it is read."""
    rows: int
    """Rows read from embeddings and other tables."""
    caches: int
    """Keys and values read and written."""
    launches: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.weights + self.rows + self.caches

    def __add__(self, other: object) -> Traffic:
        if not isinstance(other, Traffic):
            return NotImplemented
        return Traffic(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def to_json(self) -> dict[str, int]:
        return self._asdict() | {"total": self.total}


class Cost(NamedTuple):
    """A round of a pair by its parts, and a step of the target alone beside it."""

    context: int
    """Committed positions of each request."""
    batch: int
    drafts: int
    step: Traffic
    """The target alone, one token a request."""
    verify: Traffic
    """The target over the newest token and all drafts."""
    extend: Traffic
    """The draft's context for what was accepted, at the most: every draft and the anchor."""
    block: Traffic
    """The draft's block and its base logits."""
    walk: Traffic
    """The steps along the block, of the Markov and the confidence head."""

    @property
    def round(self) -> Traffic:
        """All of a round."""
        kept = Traffic(0, 0, 0, len(BOOKKEEPING))
        return self.verify + self.extend + self.block + self.walk + kept

    def floor_ms(self, traffic: Traffic, bandwidth: float) -> float:
        """The least time for `traffic` in milliseconds, at `bandwidth` in GB (10^9 B) a second."""
        return traffic.total / (bandwidth * 1e6)

    @property
    def break_even(self) -> float:
        """Tokens that a round must give to move fewer bytes a token than the target alone."""
        return self.round.total / self.step.total

    def to_json(self) -> dict[str, object]:
        """The object that `dspark plan --cost --json` prints (schema: `cost.schema.json`)."""
        parts = {name: getattr(self, name).to_json() for name in (*_PARTS, "round")}
        known = {"context": self.context, "batch": self.batch, "drafts": self.drafts}
        return known | parts | {"break_even": self.break_even}


_PARTS = ("step", "verify", "extend", "block", "walk")


def cost(plan: LoadPlan, context: int) -> Cost:
    """The cost of a round when each request has `context` committed positions.

    Raises ValueError where a round's rows would not fit behind them, or behind what the draft is
    asked for.
    """
    if not 0 <= context <= most_context(plan):
        raise ValueError(f"a round has room behind 0 to {most_context(plan)} positions")
    drafts = plan.drafts_per_round
    target, draft = _target_sizes(plan), _draft_sizes(plan)
    return Cost(
        context,
        plan.batch,
        drafts,
        step=_target_pass(plan, target, context, 1),
        verify=_target_pass(plan, target, context, drafts + 1),
        extend=_extend(plan, draft),
        block=_block(plan, draft, target, context),
        walk=_walk(plan, draft),
    )


def most_context(plan: LoadPlan) -> int:
    """The most positions that a whole round has room behind; below 0 if it has nowhere."""
    block = _integer(plan.draft, "block_size")
    return min(plan.max_seq - plan.drafts_per_round - 1, plan.draft_positions - block)


class _Sizes(NamedTuple):
    """The tensors of one model: their bytes and those of one row, by canonical name."""

    bytes: Mapping[str, int]
    row: Mapping[str, int]

    def sum(self, *prefixes: str) -> int:
        return sum(size for name, size in self.bytes.items() if name.startswith(prefixes))


def _target_pass(plan: LoadPlan, sizes: _Sizes, context: int, rows: int) -> Traffic:
    embedding = "model.embed_tokens.weight"
    weights = sum(sizes.bytes.values()) - sizes.bytes[embedding]
    if "lm_head.weight" not in sizes.bytes:
        weights += sizes.bytes[embedding]
    # Read up to the last row's own position, and each row's own written before.
    caches = plan.bytes.target_kv_per_token * (context + 2 * rows) * plan.batch
    products = _launches_for(rows * plan.batch)
    launches = _pass_launches(plan.target, rows * plan.batch) + products * len(("head", "choice"))
    if rows > 1:
        launches += products * len(_taps(plan))
    return Traffic(weights, sizes.row[embedding] * rows * plan.batch, caches, launches)


def _pass_launches(model: Model, rows: int) -> int:
    """Those of all layers, and of the rows' places, views and embeddings before and norm behind."""
    kinds = model.value("layer_types")
    # INVARIANT: contracts let only a list through.
    assert isinstance(kinds, tuple)
    each = len(LAYER) + len(PRODUCTS) * _launches_for(rows)
    return each * len(kinds) + len({*kinds}) + len(("places", "embedding", "norm"))


def _launches_for(rows: int) -> int:
    return -(-rows // _TOGETHER)


def _taps(plan: LoadPlan) -> tuple[object, ...]:
    taps = plan.draft.value("target_layer_ids")
    # INVARIANT: the lane's contract lets only a list through.
    assert isinstance(taps, tuple)
    return taps


def _extend(plan: LoadPlan, sizes: _Sizes) -> Traffic:
    layers = _integer(plan.draft, "num_hidden_layers")
    weights = sizes.sum("fc.", "hidden_norm.")
    for layer in range(layers):
        attention = f"layers.{layer}.self_attn."
        weights += sizes.sum(*(f"{attention}{part}." for part in ("k_proj", "v_proj", "k_norm")))
    kept = plan.drafts_per_round + 1
    caches = plan.bytes.draft_kv_per_token * kept * plan.batch
    products = _launches_for(kept * plan.batch)
    launches = products + len(("places", "norm")) + (products + len(("append",))) * layers
    return Traffic(weights, 0, caches, launches)


def _block(plan: LoadPlan, sizes: _Sizes, target: _Sizes, context: int) -> Traffic:
    rows = _integer(plan.draft, "block_size")
    layers = _integer(plan.draft, "num_hidden_layers")
    weights = sizes.sum("layers.", "norm.") + _head(plan, sizes, target)
    shared = "embed_tokens.weight" in plan.shared
    row = target.row["model.embed_tokens.weight"] if shared else sizes.row["embed_tokens.weight"]
    per_layer = plan.bytes.draft_kv_per_token // layers
    read = sum(_seen(plan, layer, context) + rows for layer in range(layers))
    caches = per_layer * (read + rows * layers) * plan.batch
    drafting = plan.drafts_per_round
    launches = _pass_launches(plan.draft, rows * plan.batch) + len(("ids",))
    # Where not all slots draft, those that do are gathered.
    launches += (drafting < rows) + _launches_for(drafting * plan.batch)
    return Traffic(weights, row * rows * plan.batch, caches, launches)


def _walk(plan: LoadPlan, sizes: _Sizes) -> Traffic:
    steps = plan.drafts_per_round
    table = "markov_head.markov_w1.weight"
    weights = sizes.sum("markov_head.", "confidence_head.") - sizes.bytes.get(table, 0)
    rows = sizes.row.get(table, 0) * plan.batch
    kind = plan.draft.value("markov_head_type") if table in sizes.bytes else "none"
    # A step without a head of its own takes the likeliest all the same.
    kernels = 1 if kind in ("vanilla", "none") else len(("latent", "choice"))
    launches = kernels * _launches_for(plan.batch) * steps
    launches += len(CONFIDENCE) * bool(sizes.sum("confidence_head."))
    return Traffic(weights * steps, rows * steps, 0, launches)


def _head(plan: LoadPlan, sizes: _Sizes, target: _Sizes) -> int:
    if "lm_head.weight" in plan.shared:
        own = target.bytes.get("lm_head.weight")
        return target.bytes["model.embed_tokens.weight"] if own is None else own
    return sizes.bytes[plan.tied.get("lm_head.weight", "lm_head.weight")]


def _seen(plan: LoadPlan, layer: int, context: int) -> int:
    """How many positions of the context any row of the block sees in this layer."""
    kinds = plan.draft.value("layer_types")
    # INVARIANT: a lane's contract lets only a list with an entry for each layer through.
    assert isinstance(kinds, tuple)
    if kinds[layer] != "sliding_attention":
        return context
    # The first row's window holds its own position too; no later row reaches further back.
    return min(context, _integer(plan.draft, "sliding_window") - 1)


def _draft_sizes(plan: LoadPlan) -> _Sizes:
    tensors = {name: place for name, place in plan.draft.tensors.items() if name != "d2t"}
    return _sized(plan, tensors)


def _target_sizes(plan: LoadPlan) -> _Sizes:
    if plan.target.tensors:
        return _sized(plan, plan.target.tensors)
    values = {key: found.value for key, found in plan.target.config.items()}
    shapes = needed_shapes(load_target_contract().contract, values)
    # Without files the budget took all values for ones of one format.
    each = plan.bytes.target_weights // sum(prod(shape) for shape in shapes.values())
    return _Sizes(
        {name: prod(shape) * each for name, shape in shapes.items()},
        {name: prod(shape[1:]) * each for name, shape in shapes.items()},
    )


def _sized(plan: LoadPlan, tensors: Mapping[str, TensorPlace]) -> _Sizes:
    """Sizes in the format that the plan's device computes in, which may be each file's own."""
    format_ = plan.dtype or ("float32" if plan.device == "cpu" else None)
    sizes = {
        name: place.nbytes if format_ is None else prod(place.shape) * DTYPES[format_]
        for name, place in tensors.items()
    }
    return _Sizes(sizes, {name: size // tensors[name].shape[0] for name, size in sizes.items()})


def _integer(model: Model, key: str) -> int:
    value = model.value(key)
    # INVARIANT: the contract says that these keys are integers.
    assert type(value) is int, key
    return value
