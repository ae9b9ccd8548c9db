"""A backend's larger operations out of smaller ones, where a step costs more than its launch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dspark.runtime.backends.base import Array, KvStore


class ComposedOperations(ABC):
    """What `Backend` asks for beyond the operations that are abstract here.

    Arrays are NumPy's or PyTorch's. `base.py` has the meaning of what is not described.
    """

    rounds_on_device = False

    @abstractmethod
    def linear(self, x: Array, weight: Array) -> Array: ...

    @abstractmethod
    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array: ...

    @abstractmethod
    def concat(self, arrays: Sequence[Array]) -> Array: ...

    @abstractmethod
    def swiglu(self, gate_up: Array) -> Array:
        """SiLU of the first half of `gate_up` [R, 2I], times the second half: [R, I]."""

    @abstractmethod
    def rotate(self, x: Array, rotary: Array, out: Array | None = None) -> Array:
        """`x` [R, heads, d], each pair (i, i + d/2) turned by its row's rotation; same shape.

        It is put into `out` where that is given.
        """

    @abstractmethod
    def write_kv(self, store: KvStore, layer: int, slots: Array, kv: Array) -> None:
        """Puts `kv` [R, 2K, d], keys before values, at the places that `slots` was made for."""

    def linear_add(self, x: Array, weight: Array, stream: Array) -> Array:
        return stream + self.linear(x, weight)

    def linear_swiglu(self, x: Array, weight: Array) -> Array:
        return self.swiglu(self.linear(x, weight))

    def logits(self, x: Array, weight: Array) -> Array:
        return self.linear(x, weight)

    def prepare_head_norms(self, query: Array, key: Array, heads: int, kv_heads: int) -> Array:
        # One weight a head: queries and keys are then normed and turned as one array.
        per_head = [query] * heads + [key] * kv_heads
        return self.concat(per_head).reshape(len(per_head), -1)

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
        turned, head_dim = norms.shape
        heads = x.reshape(len(x), -1, head_dim)
        queries = 2 * turned - heads.shape[1]
        qk = heads[:, :turned]
        self.rotate(self.rms_norm(qk, norms, eps), rotary, out=qk)
        self.write_kv(store, layer, slots, heads[:, queries:])
        return heads[:, :queries]

    def tap_room(self, taps: int, x: Array) -> list[Array]:  # noqa: ARG002 - the protocol's
        return []

    def tap(self, room: list[Array], number: int, x: Array) -> None:
        # INVARIANT: the taps come in their order.
        assert number == len(room)
        room.append(x)

    def features(self, room: list[Array]) -> Array:
        return self.concat(room)

    def linear_features(self, features: Array, weight: Array) -> Array:
        return self.linear(features, weight)
