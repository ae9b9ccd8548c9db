// Attention of up to 16 rows a request over pages of keys and values.
//
// A block is one split of the positions of one request, and one key head with all the query heads that
// read it: whatever the rows see, keys and values go through shared memory once. Where a split, a tile or
// a strand begins is a matter of the position alone, and each is reduced in one order. So what a row gets
// depends neither on the rows beside it nor on how many warps there are.
#include "attention.cuh"

constexpr int kMostRows = 16;  // of a request

template <int kDim>
__device__ __forceinline__ void copy_queries(const bf16* q, bf16* queries, int rows, int row_tiles,
                                             int heads, int group) {
  constexpr int kVectors = kDim / 8;
#pragma unroll 1
  for (int i = threadIdx.x; i < 16 * row_tiles * kVectors; i += blockDim.x) {
    const int row = i / kVectors, vector = i % kVectors, head = row / group * heads + row % group;
    const bool real = row < rows;
    copy_async_16(queries + row * (kDim + kPad) + vector * 8, q + (real ? head * kDim + vector * 8 : 0),
                  real ? 16 : 0);
  }
}

// One tile of keys or of values, with 0 where `low` <= position < `high` does not hold.
template <int kDim>
__device__ __forceinline__ void copy_tile(const bf16* store, bf16* tile, const int* pages, int start,
                                          int low, int high, int kv_heads, int kv, int page_size) {
  constexpr int kVectors = kDim / 8;
  int place[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int at = start + half * 32 + threadIdx.x % 32;
    place[half] = -1;
    if (at >= low && at < high)
      place[half] = (pages[at / page_size] * kv_heads + kv) * page_size + at % page_size;
  }
#pragma unroll 2
  for (int i = threadIdx.x; i < kTile * kVectors; i += blockDim.x) {
    const int row = i / kVectors, vector = i % kVectors;
    // The vectors of half a tile are whole warps, so all lanes ask for the same half.
    const int at = __shfl_sync(kFullWarp, row < 32 ? place[0] : place[1], row % 32);
    copy_async_16(tile + row * (kDim + kPad) + vector * 8,
                  store + static_cast<size_t>(at < 0 ? 0 : at) * kDim + vector * 8, at < 0 ? 0 : 16);
  }
}

template <int kDim>
__device__ __forceinline__ bool has_strange(const bf16* tile) {
  constexpr int kVectors = kDim / 8;
  bool strange = false;
  // The vectors this thread copied, so its own wait is enough.
#pragma unroll 1
  for (int i = threadIdx.x; i < kTile * kVectors; i += blockDim.x)
    strange |= !all_finite(reinterpret_cast<const uint4*>(tile + i / kVectors * (kDim + kPad))[i % kVectors]);
  return strange;
}

template <int kDim>
__device__ __forceinline__ void attend(const bf16* q, const bf16* keys, const bf16* values,
                                       const int* page_tables, const int* begins, const int* ends,
                                       float* partial, float2* stats, bf16* out, int width, int heads,
                                       int kv_heads, int page_size, int table_pages, int splits,
                                       int split, int stages, float scale) {
  constexpr int kStage = kTile * (kDim + kPad);
  const int group = heads / kv_heads, rows = width * group, row_tiles = (rows + 15) / 16;
  DYNAMIC_SHARED(bf16, queries);                                    // [16 * row_tiles, kDim + kPad]
  bf16* ring = queries + 16 * row_tiles * (kDim + kPad);            // [stages, kStage]
  Strands strands;
  strands.weights = ring + stages * kStage;                         // all [16 * row_tiles, ...]
  strands.most = reinterpret_cast<float*>(strands.weights + 16 * row_tiles * kWeightPitch);
  strands.weight = strands.most + 16 * row_tiles * kStrands;
  __shared__ int begin_of[kMostRows], end_of[kMostRows];

  const int request = blockIdx.z, kv = blockIdx.y, lane = threadIdx.x % 32;
  const int split_begin = blockIdx.x * split, split_end = split_begin + split;
  if (static_cast<int>(threadIdx.x) < width) {
    const int row = request * width + threadIdx.x, begin = begins[row], end = ends[row];
    const bool any = sees(begin, end, min(table_pages * page_size, splits * split));
    begin_of[threadIdx.x] = begin;
    end_of[threadIdx.x] = any ? end : 0;  // nothing is before position 0
  }
  __syncthreads();
  // Some row sees what is in [low, high), at the most; every row sees what is in [all_low, all_high).
  int low = 0x7fffffff, high = 0, all_low = 0, all_high = 0x7fffffff;
  for (int t = 0; t < width; t++) {
    if (end_of[t] == 0) continue;
    low = min(low, begin_of[t]), all_low = max(all_low, begin_of[t]);
    high = max(high, end_of[t]), all_high = min(all_high, end_of[t]);
  }
  if (max(low, split_begin) >= min(high, split_end)) return;

  // Step 2n takes the keys of the n-th tile from the ring, step 2n + 1 its values.
  const int first = max(low, split_begin) / kTile;
  const int steps = 2 * ((min(high, split_end) + kTile - 1) / kTile - first);
  const auto copy_step = [&](int step) {
    if (step < steps)
      copy_tile<kDim>(step % 2 ? values : keys, ring + step % stages * kStage,
                      page_tables + request * table_pages, (first + step / 2) * kTile, low, high, kv_heads,
                      kv, page_size);
    copy_async_commit();
  };
  const size_t head = static_cast<size_t>(request) * width * heads + kv * group;
  copy_queries<kDim>(q + head * kDim, queries, rows, row_tiles, heads, group);
  for (int step = 0; step < stages - 1; step++) copy_step(step);

  Team team;
  team.warps = blockDim.x / 32 / row_tiles;
  team.top = threadIdx.x / 32 / team.warps * 16;
  team.member = threadIdx.x / 32 % team.warps;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int t = (team.top + half * 8 + lane / 4) / group;
    team.begin[half] = t < width ? begin_of[t] : 0;
    team.end[half] = t < width ? end_of[t] : 0;
  }
  Sums<kDim> sums;
  for (int step = 0; step < steps; step++) {
    if (stages == 2)
      copy_async_wait<0>();
    else
      copy_async_wait<1>();
    const bf16* tile = ring + step % stages * kStage;
    const int start = (first + step / 2) * kTile;
    const bool shared_by_all = start >= all_low && start + kTile <= all_high;
    const bool strange = __syncthreads_or(step % 2 && !shared_by_all && has_strange<kDim>(tile));
    copy_step(step + stages - 1);
    if (step % 2 == 0)
      weigh_keys<kDim>(team, queries, tile, start, scale * 1.4426950408889634f, strands);
    else
      mix_values<kDim>(team, tile, start, strange, strands, sums);
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int begin = team.begin[half], end = team.end[half], row = team.top + half * 8 + lane / 4;
    if (max(begin, split_begin) >= min(end, split_end)) continue;
    const size_t item = head + static_cast<size_t>(row / group) * heads + row % group;
    const bool whole = begin >= split_begin && end <= split_end;
    const float factor = __fdividef(1.f, sums.weight[half]);
    float* share = partial + (item * splits + blockIdx.x) * kDim;
    bf16* result = out + item * kDim;
    if (!whole && team.member == 0 && lane % 4 == 0)
      stats[item * splits + blockIdx.x] = make_float2(sums.most[half], sums.weight[half]);
#pragma unroll
    for (int i = 0; i < Sums<kDim>::kChunks; i++) {
      const int column = (team.member + i * team.warps) * 16 + lane % 4 * 2;
      if (column >= kDim) break;
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const float* pair = sums.mixed[i] + n * 4 + half * 2;
        if (whole)
          *reinterpret_cast<uint32_t*>(result + column + n * 8) = pack_bf16x2(pair[0] * factor, pair[1] * factor);
        else
          *reinterpret_cast<float2*>(share + column + n * 8) = make_float2(pair[0], pair[1]);
      }
    }
  }
}

// Row i of a request sees the positions begins[i] <= p < ends[i], whatever their order in time; position
// p lies in page page_tables[request, p / page_size]. A row that ends where it begins fills up the request
// and sees nothing. A split is `split` positions, a multiple of 64. Where a row sees positions of one split
// only, its result goes to `out`; where of several, `partial` and `stats` get its share of each of those,
// for combine_splits.
//
// Grid (splits, kv_heads, requests); `stages`, threads and shared memory come from kernels/attention_geometry.py.
#define ATTEND(D)                                                                                  \
  extern "C" __global__ void __launch_bounds__(512) attend_##D(                                    \
      const bf16* __restrict__ q,          /* [requests, width, heads, D] */                       \
      const bf16* __restrict__ keys,       /* [pages, kv_heads, page_size, D] */                   \
      const bf16* __restrict__ values,     /* [pages, kv_heads, page_size, D] */                   \
      const int* __restrict__ page_tables, /* [requests, table_pages] */                           \
      const int* __restrict__ begins,      /* [requests, width] */                                 \
      const int* __restrict__ ends,        /* [requests, width] */                                 \
      float* __restrict__ partial,         /* [requests, width, heads, splits, D] */               \
      float* __restrict__ stats,           /* [requests, width, heads, splits, 2] */               \
      bf16* __restrict__ out,              /* [requests, width, heads, D] */                       \
      int requests, int width, int heads, int kv_heads, int pages, int page_size, int table_pages, \
      int splits, int split, int stages, float scale) {                                            \
    attend<D>(q, keys, values, page_tables, begins, ends, partial,                                 \
              reinterpret_cast<float2*>(stats), out, width, heads, kv_heads, page_size,            \
              table_pages, splits, split, stages, scale);                                          \
  }

ATTEND(64)
ATTEND(80)
ATTEND(96)
ATTEND(128)
