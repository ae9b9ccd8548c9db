// The sequential head of a draft: what the token before a slot adds to the slot's logits, and the
// slot's likeliest token.
//
// One launch a slot, over the whole vocabulary, and the last block to end names the token. W2, 78 MB
// at 151,936 tokens and rank 256, outlasts no cache between two slots, and only all multiprocessors
// together read it in its 18 us: one block a request would take a hundred times that. Blocks that
// stay and wait for each other between slots would save a launch inside a graph, about 1 us, and pay
// for it with a barrier over the grid and with the most blocks that fit at once.
#include "best.cuh"

// Rows of `table` and what W2 makes of them, in tiles of 16 tokens: these are the rows of a
// tensor-core tile, the columns are up to 8 * kEights requests. Both sides number the values of a
// vector alike, whatever their true places: a sum has no order to keep, and so a vector of 16 bytes
// goes from memory into registers as it is.
template <int kEights>
__device__ __forceinline__ void markov_step(const bf16* w2, const bf16* table, const float* base,
                                            const int* target_ids, const int* draws, float* logits,
                                            float* values, int* places, unsigned* arrived,
                                            int* tokens, int requests, int entries, int rank,
                                            int vocab, int target_vocab, int slots, int slot,
                                            int columns, int by_request, float scale) {
  constexpr int kBatch = 4, kRequests = 8 * kEights;
  DYNAMIC_SHARED(uint4, latents);  // [kRequests, pitch]
  __shared__ float warp_values[4][kRequests];
  __shared__ int warp_places[4][kRequests];
  __shared__ bool is_last;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int group = lane / 4, part = lane % 4, vectors = rank / 8, width = slots + 1;
  // Eight lanes load at once, four from a row and four from the next, and so meet every bank.
  const int pitch = (vectors + 7) / 8 * 8 + 4;
  for (int i = threadIdx.x; i < kRequests * pitch; i += blockDim.x) {
    const int request = i / pitch, vector = i % pitch;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (request < requests && vector < vectors) {
      const int row = by_request ? request : tokens[request * width + slot];
      const bool known = row >= 0 && row < entries;
      // A token that the table does not have makes all logits NaN, and so the next one -1.
      value = known ? reinterpret_cast<const uint4*>(table)[static_cast<size_t>(row) * vectors + vector]
                    : make_uint4(~0u, ~0u, ~0u, ~0u);
    }
    latents[i] = value;
  }
  __syncthreads();

  Best best[kEights][2];
  bool hands_over[kEights][2];
#pragma unroll
  for (int n = 0; n < kEights; n++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int request = 8 * n + 2 * part + e;
      best[n][e] = {-kInfinity, kNowhere};
      hands_over[n][e] = request < requests && draws[request];
    }
  const uint4* weights = reinterpret_cast<const uint4*>(w2);
  const int tiles = (vocab + 15) / 16;
  for (int tile = blockIdx.x * warps + warp; tile < tiles; tile += gridDim.x * warps) {
    const int low = 16 * tile + group, high = low + 8;
    float sums[kEights][4] = {};
    for (int begin = 0; begin < vectors; begin += 4 * kBatch) {
      uint4 a[kBatch], b[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; i++) {
        const int vector = begin + 4 * i + part;
        a[i] = b[i] = make_uint4(0, 0, 0, 0);
        if (vector < vectors && low < vocab) a[i] = load_streaming(weights + static_cast<size_t>(low) * vectors + vector);
        if (vector < vectors && high < vocab) b[i] = load_streaming(weights + static_cast<size_t>(high) * vectors + vector);
      }
#pragma unroll
      for (int i = 0; i < kBatch; i++) {
        if (begin + 4 * i >= vectors) break;
#pragma unroll
        for (int n = 0; n < kEights; n++) {
          const uint4 x = latents[(8 * n + group) * pitch + begin + 4 * i + part];
          mma_m16n8k16(sums[n], {a[i].x, b[i].x, a[i].y, b[i].y}, {x.x, x.y});
          mma_m16n8k16(sums[n], {a[i].z, b[i].z, a[i].w, b[i].w}, {x.z, x.w});
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kEights; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int request = 8 * n + 2 * part + e % 2, token = e < 2 ? low : high;
        if (request >= requests || token >= vocab) continue;
        const float of_block = base[(static_cast<size_t>(request) * slots + slot) * columns + token];
        const float logit = __fadd_rn(__fmul_rn(of_block, scale), sums[n][e]);
        best[n][e % 2] = better(best[n][e % 2], {logit, token});
        if (hands_over[n][e % 2]) logits[static_cast<size_t>(request) * target_vocab + target_ids[token]] = logit;
      }
  }

#pragma unroll
  for (int n = 0; n < kEights; n++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      Best mine = best[n][e];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2)
        mine = better(mine, {__shfl_xor_sync(kFullWarp, mine.value, lanes), __shfl_xor_sync(kFullWarp, mine.place, lanes)});
      const int request = 8 * n + 2 * part + e;
      if (group == 0) warp_values[warp][request] = mine.value, warp_places[warp][request] = mine.place;
    }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < requests) {
    Best mine = {-kInfinity, kNowhere};
    for (int w = 0; w < warps; w++) mine = better(mine, {warp_values[w][threadIdx.x], warp_places[w][threadIdx.x]});
    values[blockIdx.x * requests + threadIdx.x] = mine.value;
    places[blockIdx.x * requests + threadIdx.x] = mine.place;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;  // and it is 0 again for the next launch
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  for (int request = warp; request < requests; request += warps) {
    Best mine = {-kInfinity, kNowhere};
    for (int i = lane; i < static_cast<int>(gridDim.x); i += 32)
      mine = better(mine, {values[i * requests + request], places[i * requests + request]});
    mine = best_of(mine, 32);
    if (lane == 0 && !draws[request])
      tokens[request * width + slot + 1] = fabsf(mine.value) < kInfinity ? target_ids[mine.place] : -1;
  }
}

// logits = scale * base + W2 latent. `latent` is the table's row of the token at `slot` of `tokens`,
// or, `by_request`, the request's own, as the two kernels below leave it. The likeliest becomes the
// token at slot + 1, as a target id; -1 where no logit is a finite number or one is none. The logits
// of requests that `draws` says go to `logits` at their target ids instead; what the draft does not
// know must hold minus infinity there. `arrived` must be 0 before the first launch. Up to 8, or 16,
// requests; rank a multiple of 8; grid (blocks), up to 128 threads, 16 * requests of the name *
// ((rank / 8 + 7) / 8 * 8 + 4) bytes of shared memory.
#define MARKOV_STEP(REQUESTS)                                                                        \
  extern "C" __global__ void __launch_bounds__(128) markov_step_##REQUESTS(                          \
      const bf16* __restrict__ w2,        /* [vocab, rank] */                                        \
      const bf16* __restrict__ table,     /* [entries, rank] */                                      \
      const float* __restrict__ base,     /* [requests, slots, columns] */                           \
      const int* __restrict__ target_ids, /* [vocab] */                                              \
      const int* __restrict__ draws,      /* [requests] */                                           \
      float* __restrict__ logits,         /* [requests, target_vocab] */                             \
      float* values,                      /* [blocks, requests] */                                   \
      int* places,                        /* [blocks, requests] */                                   \
      unsigned* arrived,                  /* [1] */                                                  \
      int* tokens,                        /* [requests, slots + 1] */                                \
      int requests, int entries, int rank, int vocab, int target_vocab, int slots, int slot,         \
      int columns, int blocks, int by_request, float scale) {                                        \
    markov_step<REQUESTS / 8>(w2, table, base, target_ids, draws, logits, values, places, arrived,   \
                              tokens, requests, entries, rank, vocab, target_vocab, slots, slot,     \
                              columns, by_request, scale);                                           \
  }

MARKOV_STEP(8)
MARKOV_STEP(16)

// A lane's share of a row of weights times `x`.
__device__ __forceinline__ float share(const bf16* weights, const bf16* x, int count, int lane) {
  float sum = 0.f;
  for (int i = lane; i < count / 8; i += 32) {
    float w[8], v[8];
    unpack_bf16x8(reinterpret_cast<const uint4*>(weights)[i], w);
    unpack_bf16x8(reinterpret_cast<const uint4*>(x)[i], v);
#pragma unroll
    for (int j = 0; j < 8; j++) sum += w[j] * v[j];
  }
  return sum;
}
__device__ __forceinline__ float share(const bf16* weights, const float* x, int count, int lane) {
  float sum = 0.f;
  for (int i = lane; i < count / 8; i += 32) {
    float w[8];
    unpack_bf16x8(reinterpret_cast<const uint4*>(weights)[i], w);
    const float4 a = reinterpret_cast<const float4*>(x)[2 * i], b = reinterpret_cast<const float4*>(x)[2 * i + 1];
    sum += w[0] * a.x + w[1] * a.y + w[2] * a.z + w[3] * a.w + w[4] * b.x + w[5] * b.y + w[6] * b.z + w[7] * b.w;
  }
  return sum;
}
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// A gated head's latents: the table's row of the token at `slot`, each value times the sigmoid of a
// row of weights times [hidden; table's row], plus bias. `hidden` is row `at` of the request's block.
// A warp a value; grid (any, requests); rank and width multiples of 8.
extern "C" __global__ void __launch_bounds__(128) markov_gated(
    const bf16* __restrict__ weights,  // [rank, width + rank]
    const bf16* __restrict__ bias,     // [rank]
    const bf16* __restrict__ table,    // [entries, rank]
    const bf16* __restrict__ hidden,   // [requests, rows, width]
    const int* __restrict__ tokens,    // [requests, slots + 1]
    bf16* __restrict__ latents,        // [requests, rank]
    int requests, int entries, int rank, int rows, int at, int width, int slots, int slot) {
  const int request = blockIdx.y, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int token = tokens[request * (slots + 1) + slot];
  const bool known = token >= 0 && token < entries;
  const bf16* embedded = table + static_cast<size_t>(known ? token : 0) * rank;
  const bf16* x = hidden + (static_cast<size_t>(request) * rows + at) * width;
  for (int i = blockIdx.x * warps + threadIdx.x / 32; i < rank; i += gridDim.x * warps) {
    const bf16* row = weights + static_cast<size_t>(i) * (width + rank);
    const float gate = warp_sum(share(row, x, width, lane) + share(row + width, embedded, rank, lane));
    if (lane != 0) continue;
    const float value = to_float(embedded[i]) * sigmoid(gate + to_float(bias[i]));
    latents[static_cast<size_t>(request) * rank + i] = to_bf16(known ? value : __int_as_float(0x7fffffff));
  }
}

// A recurrent head's latents and its state behind this slot. Three rows of weights times [state;
// table's row; hidden], plus bias, give g, c and o: the state becomes sigmoid(g) * state + (1 -
// sigmoid(g)) * tanh(c), the latent is tanh(o). Before slot 0 the state is 0, whatever `before` holds.
// A warp a value; grid (any, requests); rank and width multiples of 8.
extern "C" __global__ void __launch_bounds__(128) markov_recurrent(
    const bf16* __restrict__ weights,  // [3 * rank, 2 * rank + width]
    const bf16* __restrict__ bias,     // [3 * rank]
    const bf16* __restrict__ table,    // [entries, rank]
    const bf16* __restrict__ hidden,   // [requests, rows, width]
    const int* __restrict__ tokens,    // [requests, slots + 1]
    const float* __restrict__ before,  // [requests, rank]
    float* __restrict__ after,         // [requests, rank]
    bf16* __restrict__ latents,        // [requests, rank]
    int requests, int entries, int rank, int rows, int at, int width, int slots, int slot) {
  const int request = blockIdx.y, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int token = tokens[request * (slots + 1) + slot];
  const bool known = token >= 0 && token < entries;
  const bf16* embedded = table + static_cast<size_t>(known ? token : 0) * rank;
  const bf16* x = hidden + (static_cast<size_t>(request) * rows + at) * width;
  const float* state = before + static_cast<size_t>(request) * rank;
  for (int i = blockIdx.x * warps + threadIdx.x / 32; i < rank; i += gridDim.x * warps) {
    float joint[3];
#pragma unroll
    for (int j = 0; j < 3; j++) {
      const bf16* row = weights + (static_cast<size_t>(j) * rank + i) * (2 * rank + width);
      float sum = share(row + rank, embedded, rank, lane) + share(row + 2 * rank, x, width, lane);
      if (slot > 0) sum += share(row, state, rank, lane);
      joint[j] = warp_sum(sum) + to_float(bias[j * rank + i]);
    }
    if (lane != 0) continue;
    const float kept = sigmoid(joint[0]), old = slot > 0 ? state[i] : 0.f;
    const size_t to = static_cast<size_t>(request) * rank + i;
    after[to] = kept * old + (1.f - kept) * tanhf(joint[1]);
    latents[to] = to_bf16(known ? tanhf(joint[2]) : __int_as_float(0x7fffffff));
  }
}
