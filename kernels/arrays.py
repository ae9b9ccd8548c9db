"""Arrays on a device, as kernels are handed them."""

from __future__ import annotations

from dataclasses import dataclass

from dspark.kernels.driver import Handle


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """A dense array of `dtype` on a device; `handle` is its driver's own."""

    handle: Handle
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.handle.shape)

    @property
    def size(self) -> int:
        """How many values it has."""
        return int(self.handle.size)

    @property
    def nbytes(self) -> int:
        """How many bytes of the device's memory it covers."""
        return int(self.handle.nbytes)

    def reshape(self, *shape: int) -> DeviceArray:
        """The same values under another shape."""
        return DeviceArray(self.handle.reshape(shape), self.dtype)

    def rows(self, begin: int, end: int) -> DeviceArray:
        """The entries `begin` to `end` - 1 of the first axis: the same memory, not a copy."""
        return DeviceArray(self.handle[begin:end], self.dtype)
