"""The operations a device must offer for the models to run on it.

Shapes: R rows (tokens of all requests of a pass, one after the other), H hidden size, N outputs of
a linear, A query heads, K key/value heads, d head size, P positions of a page.

An `Array` lives on the device. It supports `+`, `*`, `reshape` and slicing as NumPy's does; all
else goes through the backend. Every operation treats each row on its own: what a row gets does not
depend on which rows travel with it, and on a backend with `row_invariant` not even in the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dspark.runtime.backends.rope import Rope

Array: TypeAlias = Any
HostInts: TypeAlias = npt.NDArray[np.int64]
HostFloats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reads:
    """What the rows of one request may look at.

    `pages` is the request's page table: position p lies in `pages[p // P]`. Row i of the request
    sees the positions `begins[i] <= p < ends[i]`, its own included, whatever their order in time:
    a causal row ends after itself, and a row of a draft's block ends after the block.
    """

    pages: Sequence[int]
    begins: Sequence[int]
    ends: Sequence[int]


@dataclass(frozen=True, slots=True)
class KvStore:
    """Keys and values of all layers of one model: per layer [pages, K, P, d], never shared."""

    keys: list[Array]
    values: list[Array]
    page_size: int

    @property
    def nbytes(self) -> int:
        """How much of the device's memory it takes."""
        return sum(int(array.nbytes) for array in (*self.keys, *self.values))


class Backend(Protocol):
    """A device and the number format it computes in."""

    name: str
    dtype: str
    row_invariant: bool
    rounds_on_device: bool
    """Whether a whole round runs on the device, drafts and decisions included."""

    def session(self) -> AbstractContextManager[object]:
        """What a pass runs inside, so that the device library does nothing it need not."""
        ...

    def parameter(self, tensor: Any) -> Array:
        """`tensor`, of any shape, on the device: a norm's weight or an embedding table."""
        ...

    def prepare_linear(self, weights: Sequence[Any], biases: Sequence[Any] | None = None) -> Array:
        """What `linear` takes for these matrices [N, H], one below the other, and biases [N]."""
        ...

    def prepare_head_norms(self, query: Array, key: Array, heads: int, kv_heads: int) -> Array:
        """What `place_heads` takes for two weights [d] that all heads of a kind share."""
        ...

    def ids(self, values: Sequence[int]) -> Array:
        """int64 [len(values)] on the device."""
        ...

    def host(self, x: Array) -> HostFloats:
        """`x` as float32 in the host's memory, of the same shape."""
        ...

    def take(self, x: Array, rows: Sequence[int]) -> Array:
        """The rows of `x` with these numbers, in this order."""
        ...

    def embedding(self, ids: Array, table: Array) -> Array:
        """Rows `ids` [R] of `table` [V, H]: [R, H]."""
        ...

    def linear(self, x: Array, weight: Array) -> Array:
        """`x` [R, H] times the prepared weight, transposed, plus its bias: [R, N]."""
        ...

    def linear_add(self, x: Array, weight: Array, stream: Array) -> Array:
        """`stream` [R, N] plus `linear` of `x`; it may take the place of `stream`."""
        ...

    def linear_swiglu(self, x: Array, weight: Array) -> Array:
        """SiLU of the first half of `linear`'s outputs, times the second half: [R, N / 2]."""
        ...

    def logits(self, x: Array, weight: Array) -> Array:
        """`linear`, in float32 where the device's products come out as such."""
        ...

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array:
        """`x` over the root of its mean square on the last axis, times `weight`; same shape.

        The mean is taken in float32 at least; the quotient is rounded before it is scaled.
        """
        ...

    def rope_table(self, rope: Rope, head_dim: int, length: int) -> Array:
        """The rotations of the positions 0 to `length` - 1."""
        ...

    def rotary(self, table: Array, positions: Sequence[int]) -> Array:
        """The rotations of `positions` [R], as `place_heads` takes them."""
        ...

    def kv_store(
        self, layers: int, pages: int, page_size: int, kv_heads: int, head_dim: int
    ) -> KvStore:
        """Room for the keys and values of `pages` pages; what it holds at first is unspecified."""
        ...

    def slots(self, values: Sequence[int], store: KvStore) -> Array:
        """What `place_heads` takes for R slots, slot s being place s % P of page s // P."""
        ...

    def place_heads(
        self,
        x: Array,
        norms: Array,
        eps: float,
        rotary: Array,
        store: KvStore,
        layer: int,
        slots: Array,
    ) -> Array:
        """Norms and rotates the query and key heads of `x`; keys and values go to their slots.

        `x` is [R, (A + 2K) * d]: query heads, key heads, value heads; A, which `norms` was made
        for, may be 0. Each pair (i, i + d/2) of a query or key head is turned by its row's
        rotation. Returns the queries [R, A, d].
        """
        ...

    def attention_plan(self, reads: Sequence[Reads], store: KvStore, group: int) -> Array:
        """What `attend` needs to know of a pass, for all layers that read alike.

        `group` is A // K, the number of query heads that share a key head. The rows of the pass
        are those of `reads[0]`, then those of `reads[1]`, and so on.
        """
        ...

    def attend(self, q: Array, store: KvStore, layer: int, plan: Array) -> Array:
        """softmax(q k / sqrt(d)) v of `q` [R, A, d] over what each row may see: [R, A * d].

        Query head h reads key head h // group. Slots that no row may see are never used, whatever
        they hold, NaN included.
        """
        ...

    def tap_room(self, taps: int, x: Array) -> Array:
        """Room for `taps` arrays that are as large as `x`, to be filled by `tap`."""
        ...

    def tap(self, room: Array, number: int, x: Array) -> None:
        """Keeps what `x` is now as the tap `number`; the taps come in their order."""
        ...

    def features(self, room: Array) -> Array:
        """The taps of a full room side by side, [R, taps * H]: what `linear_features` takes."""
        ...

    def linear_features(self, features: Array, weight: Array) -> Array:
        """`linear` of features."""
        ...

    def argmax(self, x: Array) -> tuple[HostInts, HostFloats]:
        """For `x` [R, N]: the first place of each row's largest value [R], and that value [R].

        The value is NaN when the row holds one.
        """
        ...


class HostWalk(Backend, Protocol):
    """A backend whose arrays the host can compute with, as the walk along a block does."""

    def concat(self, arrays: Sequence[Array]) -> Array:
        """`arrays` joined on their last axis."""
        ...

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + exp(-x)), element by element."""
        ...

    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent, element by element."""
        ...
