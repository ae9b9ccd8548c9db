// Whole rows, vector by vector: rows of an embedding table, and the gated half of a feed-forward.
#include "device.cuh"

// out[r] = table[ids[r]]. Grid (rows), width a multiple of 8.
//
// An id that the table does not have makes its row NaN: it is then seen in the logits, where a
// neighbour's memory would not be.
extern "C" __global__ void __launch_bounds__(256) gather_rows(
    const bf16* __restrict__ table,  // [entries, width]
    const int* __restrict__ ids,     // [rows]
    bf16* __restrict__ out,          // [rows, width]
    int rows, int entries, int width) {
  const int id = ids[blockIdx.x], vectors = width / 8;
  uint4* to = reinterpret_cast<uint4*>(out) + static_cast<size_t>(blockIdx.x) * vectors;
  const bool known = id >= 0 && id < entries;
  const uint4* from = reinterpret_cast<const uint4*>(table) + static_cast<size_t>(known ? id : 0) * vectors;
  const uint4 nothing = make_uint4(~0u, ~0u, ~0u, ~0u);
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) to[i] = known ? from[i] : nothing;
}

// out = SiLU(gate) * up, gate and up being the halves of each row. Any grid; width a multiple of 8.
extern "C" __global__ void __launch_bounds__(256) silu_mul(
    const bf16* __restrict__ gate_up,  // [rows, 2 * width]
    bf16* __restrict__ out,            // [rows, width]
    int rows, int width) {
  const int vectors = width / 8;
  const size_t count = static_cast<size_t>(rows) * vectors, step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const uint4* from = reinterpret_cast<const uint4*>(gate_up);
  uint4* to = reinterpret_cast<uint4*>(out);
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const size_t at = i / vectors * vectors + i;  // a row of `from` is two rows of `to`
    float gate[8], up[8];
    unpack_bf16x8(from[at], gate);
    unpack_bf16x8(from[at + vectors], up);
#pragma unroll
    for (int j = 0; j < 8; j++) up[j] *= gate[j] / (1.f + __expf(-gate[j]));
    to[i] = pack_bf16x8(up);
  }
}
