// The product of up to 16 rows and a matrix of weights, of which each is read once: the time this
// takes is the time the weights take.
//
// A warp has the weights of 16 channels, the 16 rows of a tensor-core tile whose eight columns are
// rows of activations. It goes through all of k in one order, whatever else is in its block and
// however many rows there are, so a row's result is the same bits in any company. Its weights come
// through a ring in shared memory, 256 bytes of each channel at a time; the rows pass beside them
// and are shared by the block.
#pragma once
#include "device.cuh"

constexpr int kStages = 6;
constexpr int kChannelBytes = 256;  // of one channel in one stage
constexpr int kPitch = 20;          // of a row of results, in floats: aligned, and in other banks

// What a lane holds of the result: eight channels of one row, or nothing.
struct Share {
  int row, channel;
  bool mine;
};

// Where a vector of 16 bytes lies in a row of shared memory. Eight lanes load at once, four from a
// row and four from the next, and so meet every bank.
__device__ __forceinline__ int swizzled(int row, int vector) { return vector ^ (row % 2 * 5); }

// Eight weights, or sixteen, as pairs of bf16.
__device__ __forceinline__ void widen(const uint4& packed, uint32_t (&pairs)[4]) {
  pairs[0] = packed.x, pairs[1] = packed.y, pairs[2] = packed.z, pairs[3] = packed.w;
}
__device__ __forceinline__ void widen(const uint4& packed, uint32_t (&pairs)[8]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float values[4];
    unpack_fp8x4(words[i], values);
    pairs[2 * i] = pack_bf16x2(values[0], values[1]);
    pairs[2 * i + 1] = pack_bf16x2(values[2], values[3]);
  }
}

// A lane's share of x times the weights. Weights of type fp8 are worth `scales` of their channel.
// kPaired: the weights are n gates and behind them n ups, and the result SiLU(gate) * up.
// kPanels: x is [k / panel, rows, panel], as of several layers, and a row's panels follow each other.
template <class W, bool kPaired = false, bool kPanels = false>
__device__ __forceinline__ Share multiply(const W* weights, const float* scales, const bf16* x, int rows,
                                          int n, int k, int panel, float (&v)[8]) {
  constexpr int kValues = 16 / sizeof(W), kDepth = kChannelBytes / sizeof(W), kVectors = kDepth / 8;
  DYNAMIC_SHARED(uint4, ring);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int group = lane / 4, part = lane % 4;
  const int first = (blockIdx.x * warps + warp) * (kPaired ? 8 : 16), steps = (k + kDepth - 1) / kDepth;
  const int stage_size = warps * kChannelBytes + rows * kVectors;  // in vectors; 16 channels, 16 bytes
  uint4* const own = ring + warp * kChannelBytes;
  uint4* const shared_rows = ring + warps * kChannelBytes;

  const auto load = [&](int step) {
    const int stage = step % kStages * stage_size, at = step * kDepth + lane % 16 * kValues;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int r = 2 * i + lane / 16;
      const int channel = first + (kPaired ? r % 8 : r);
      const size_t source = channel + (kPaired && r >= 8 ? n : 0);
      const bool there = channel < n && at < k;
      // What is not there is zero on both sides: zero times what memory held may be NaN.
      copy_async_16(own + stage + 16 * r + swizzled(r, lane % 16), weights + (there ? source * k + at : 0),
                    there ? 16 : 0);
    }
    for (int i = threadIdx.x; i < rows * kVectors; i += blockDim.x) {
      const int row = i / kVectors, vector = i % kVectors, place = step * kDepth + 8 * vector;
      const size_t source = kPanels ? (static_cast<size_t>(place / panel) * rows + row) * panel + place % panel
                                    : static_cast<size_t>(row) * k + place;
      const bool there = place < k;
      copy_async_16(shared_rows + stage + row * kVectors + swizzled(row, vector), x + (there ? source : 0),
                    there ? 16 : 0);
    }
  };

  // Two sums at a time, since a tile waits for the one before it in the same sum.
  float sums[2][2][4] = {};
#pragma unroll
  for (int step = 0; step < kStages - 1; step++) {
    if (step < steps) load(step);
    copy_async_commit();
  }
  for (int step = 0; step < steps; step++) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    // Into the stage that everyone has left behind.
    if (step + kStages - 1 < steps) load(step + kStages - 1);
    copy_async_commit();
    const int stage = step % kStages * stage_size;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      // The tile may take k in any order, as long as both sides agree: a lane takes what lies together.
      const uint4* from = own + stage + 16 * group + swizzled(group, 4 * i + part);
      uint32_t low[kValues / 2], high[kValues / 2];
      widen(from[0], low);
      widen(from[16 * 8], high);
#pragma unroll
      for (int columns = 0; columns < 2; columns++) {
        if (columns * 8 >= rows) break;
        // Columns beyond the last row repeat it; nobody looks at them.
        const int row = min(columns * 8 + group, rows - 1);
#pragma unroll
        for (int j = 0; j < kValues / 8; j++) {
          const int vector = (4 * i + part) * (kValues / 8) + j;
          const uint4 b = shared_rows[stage + row * kVectors + swizzled(row, vector)];
          mma_m16n8k16(sums[columns][0], {low[4 * j], high[4 * j], low[4 * j + 1], high[4 * j + 1]}, {b.x, b.y});
          mma_m16n8k16(sums[columns][1], {low[4 * j + 2], high[4 * j + 2], low[4 * j + 3], high[4 * j + 3]},
                       {b.z, b.w});
        }
      }
    }
  }

  // From four lanes that have a channel each to one lane that has eight: through weights that were used.
  float* const results = reinterpret_cast<float*>(own);
  float scale[2] = {1.f, 1.f};
  if (sizeof(W) == 1) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int channel = first + group + (kPaired ? 0 : 8 * half);
      if (channel < n) scale[half] = scales[channel + (kPaired ? half * n : 0)];
    }
  }
  __syncwarp();
#pragma unroll
  for (int columns = 0; columns < 2; columns++) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      results[(columns * 8 + part * 2 + i % 2) * kPitch + group + i / 2 * 8] =
          (sums[columns][0][i] + sums[columns][1][i]) * scale[i / 2];
  }
  __syncwarp();
  const int row = kPaired ? lane % 16 : lane / 2, channel = first + (kPaired ? 0 : lane % 2 * 8);
  const float4* from = reinterpret_cast<const float4*>(results + row * kPitch) + (kPaired ? 0 : lane % 2 * 2);
  const float4 a = from[0], b = from[1];
  const float left[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
  for (int j = 0; j < 8; j++) v[j] = left[j];
  if (kPaired) {
    const float4 c = from[2], d = from[3];
    const float right[8] = {c.x, c.y, c.z, c.w, d.x, d.y, d.z, d.w};
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = right[j] * (v[j] / (1.f + __expf(-v[j])));
  }
  return {row, channel, row < rows && channel < n && !(kPaired && lane >= 16)};
}
