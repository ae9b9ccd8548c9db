// Between the projections and attention: norm of each query and key head, rotation by position, and
// keys and values put into their pages.
#include "device.cuh"

// One row's heads, eight lanes a head. A lane holds two vectors of eight that are turned against each
// other: those from 8 * part on in either half of the head.
template <int kDim>
__device__ __forceinline__ void norm_rope_append(const bf16* x, bf16* q, const bf16* q_weight,
                                                 const bf16* k_weight, const float* rotations,
                                                 const int* at, const int* slots, bf16* keys,
                                                 bf16* values, int heads, int kv_heads,
                                                 int positions, int page_size, float eps) {
  constexpr int kHalf = kDim / 2, kParts = kHalf / 8;
  static_assert(kHalf % 8 == 0 && kParts <= 8, "a head is eight lanes of two vectors at most");
  const int row = blockIdx.x, part = threadIdx.x % 8, together = blockDim.x / 8;
  const int items = heads + 2 * kv_heads, position = at[row], slot = slots[row];
  const size_t page = slot / page_size, place = slot % page_size;
  const bool known = position >= 0 && position < positions;
  float cosine[8], sine[8];
#pragma unroll
  for (int j = 0; j < 8; j++) cosine[j] = sine[j] = __int_as_float(0x7fffffff);
  if (known && part < kParts) {
    const float4* turn = reinterpret_cast<const float4*>(rotations + static_cast<size_t>(position) * kDim) + 2 * part;
    const float4 c0 = turn[0], c1 = turn[1], s0 = turn[kHalf / 4], s1 = turn[kHalf / 4 + 1];
    const float c[8] = {c0.x, c0.y, c0.z, c0.w, c1.x, c1.y, c1.z, c1.w};
    const float s[8] = {s0.x, s0.y, s0.z, s0.w, s1.x, s1.y, s1.z, s1.w};
#pragma unroll
    for (int j = 0; j < 8; j++) cosine[j] = c[j], sine[j] = s[j];
  }
  // Every lane goes round as often as any other: the sum below needs them all.
  for (int first = blockIdx.y * together; first < items; first += gridDim.y * together) {
    const int item = first + threadIdx.x / 8;
    const bool mine = item < items && part < kParts;
    const bool is_query = item < heads, is_value = item >= heads + kv_heads;
    uint4 left = make_uint4(0, 0, 0, 0), right = left;
    if (mine) {
      const uint4* from = reinterpret_cast<const uint4*>(x + (static_cast<size_t>(row) * items + item) * kDim) + part;
      left = from[0];
      right = from[kParts];
    }
    float a[8], b[8], squares = 0.f;
    unpack_bf16x8(left, a);
    unpack_bf16x8(right, b);
#pragma unroll
    for (int j = 0; j < 8; j++) squares += a[j] * a[j] + b[j] * b[j];
#pragma unroll
    for (int other = 4; other > 0; other /= 2) squares += __shfl_xor_sync(kFullWarp, squares, other);
    if (!mine) continue;
    const int kv = (item - heads) % kv_heads;
    bf16* to = is_query ? q + (static_cast<size_t>(row) * heads + item) * kDim
                        : (is_value ? values : keys) + ((page * kv_heads + kv) * page_size + place) * kDim;
    if (!is_value) {
      const uint4* weight = reinterpret_cast<const uint4*>(is_query ? q_weight : k_weight) + part;
      float wa[8], wb[8];
      unpack_bf16x8(weight[0], wa);
      unpack_bf16x8(weight[kParts], wb);
      const float scale = rsqrtf(squares / kDim + eps);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float u = to_float(to_bf16(to_float(to_bf16(a[j] * scale)) * wa[j]));
        const float v = to_float(to_bf16(to_float(to_bf16(b[j] * scale)) * wb[j]));
        a[j] = u * cosine[j] - v * sine[j];
        b[j] = v * cosine[j] + u * sine[j];
      }
      left = pack_bf16x8(a);
      right = pack_bf16x8(b);
    }
    reinterpret_cast<uint4*>(to)[part] = left;
    reinterpret_cast<uint4*>(to)[part + kParts] = right;
  }
}

// `x` holds each row's query heads, key heads and value heads; `heads` may be 0, as for the context of
// a draft, and nothing is then written to `q`. `rotations` has the cosines of a position's pairs and
// behind them the sines, whatever scaling went into them. Row r goes to place `slots[r] % page_size`
// of page `slots[r] / page_size`; a position beyond the table gives NaN. Grid (rows, any).
#define NORM_ROPE_APPEND(D)                                                                        \
  extern "C" __global__ void __launch_bounds__(128) norm_rope_append_##D(                          \
      const bf16* __restrict__ x,          /* [rows, (heads + 2 * kv_heads) * D] */                \
      bf16* __restrict__ q,                /* [rows, heads * D] */                                 \
      const bf16* __restrict__ q_weight,   /* [D] */                                               \
      const bf16* __restrict__ k_weight,   /* [D] */                                               \
      const float* __restrict__ rotations, /* [positions, D] */                                    \
      const int* __restrict__ at,          /* [rows] */                                            \
      const int* __restrict__ slots,       /* [rows] */                                            \
      bf16* __restrict__ keys,             /* [pages, kv_heads, page_size, D] */                   \
      bf16* __restrict__ values,           /* [pages, kv_heads, page_size, D] */                   \
      int rows, int heads, int kv_heads, int positions, int pages, int page_size, float eps) {     \
    norm_rope_append<D>(x, q, q_weight, k_weight, rotations, at, slots, keys, values, heads,       \
                        kv_heads, positions, page_size, eps);                                      \
  }

NORM_ROPE_APPEND(64)
NORM_ROPE_APPEND(80)
NORM_ROPE_APPEND(96)
NORM_ROPE_APPEND(128)
