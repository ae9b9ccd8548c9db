// One result out of what a row got from each split of its positions.
#include "attention.cuh"

template <int kDim>
__device__ __forceinline__ void combine_splits(const float* partial, const float2* stats,
                                               const int* begins, const int* ends, bf16* out, int rows,
                                               int heads, int positions, int splits, int split) {
  const int item = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (item >= rows * heads) return;
  const bool mine = lane < kDim / 4;
  const int begin = begins[item / heads], end = ends[item / heads];
  uint2* to = reinterpret_cast<uint2*>(out + static_cast<size_t>(item) * kDim) + lane;
  if (!sees(begin, end, min(positions, splits * split))) {
    const unsigned nothing = begin == end ? 0u : ~0u;
    if (mine) *to = make_uint2(nothing, nothing);
    return;
  }
  const int first = begin / split, last = (end - 1) / split;
  if (first == last) return;  // `out` has it already
  const size_t at = static_cast<size_t>(item) * splits;
  const float4* parts = reinterpret_cast<const float4*>(partial + at * kDim) + lane;
  float total[4] = {}, weight = 0.f, most = -kInfinity;
  for (int base = first; base <= last; base += 32) {
    const int count = min(32, last + 1 - base);
    const float2 stat = lane < count ? stats[at + base + lane] : make_float2(-kInfinity, 0.f);
    const float now = fmaxf(most, warp_max(stat.x));
    const float keep = exp2f(most - reference(now)), factor = exp2f(stat.x - reference(now));
    weight = weight * keep + warp_sum(stat.y * factor);
    most = now;
#pragma unroll
    for (int j = 0; j < 4; j++) total[j] *= keep;
#pragma unroll 1
    for (int i = 0; i < count; i += 4) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float times = __shfl_sync(kFullWarp, factor, i + j);  // 0 behind the last split
        float4 part = make_float4(0.f, 0.f, 0.f, 0.f);
        if (mine && i + j < count) part = parts[(base + i + j) * (kDim / 4)];
        total[0] += part.x * times, total[1] += part.y * times;
        total[2] += part.z * times, total[3] += part.w * times;
      }
    }
  }
  const float factor = __fdividef(1.f, weight);
  if (mine)
    *to = make_uint2(pack_bf16x2(total[0] * factor, total[1] * factor),
                     pack_bf16x2(total[2] * factor, total[3] * factor));
}

// The result of every row that sees positions of several splits, added up in their order; 0 for a row that
// sees nothing; and NaN for one whose range is no range, or goes beyond the `positions` of a page table or
// those of all splits. A warp a head of a row.
#define COMBINE_SPLITS(D)                                                                          \
  extern "C" __global__ void __launch_bounds__(256) combine_splits_##D(                            \
      const float* __restrict__ partial, /* [rows, heads, splits, D] */                            \
      const float* __restrict__ stats,   /* [rows, heads, splits, 2] */                            \
      const int* __restrict__ begins,    /* [rows] */                                              \
      const int* __restrict__ ends,      /* [rows] */                                              \
      bf16* __restrict__ out,            /* [rows, heads, D] */                                    \
      int rows, int heads, int positions, int splits, int split) {                                 \
    combine_splits<D>(partial, reinterpret_cast<const float2*>(stats), begins, ends, out, rows,    \
                      heads, positions, splits, split);                                            \
  }

COMBINE_SPLITS(64)
COMBINE_SPLITS(80)
COMBINE_SPLITS(96)
COMBINE_SPLITS(128)
