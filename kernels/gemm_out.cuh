// What becomes of a share of a product: added to, stored, or only looked at.
#pragma once
#include "best.cuh"
#include "gemm.cuh"

// Where a share begins in an array [rows, n].
__device__ __forceinline__ size_t place_of(const Share& at, int n) {
  return static_cast<size_t>(at.row) * n + at.channel;
}
__device__ __forceinline__ void add(const Share& at, const bf16* from, float (&v)[8]) {
  if (!at.mine) return;
  float more[8];
  unpack_bf16x8(*reinterpret_cast<const uint4*>(from), more);
#pragma unroll
  for (int j = 0; j < 8; j++) v[j] += more[j];
}
__device__ __forceinline__ void store(const Share& at, const float (&v)[8], int n, bf16* out) {
  if (at.mine) *reinterpret_cast<uint4*>(out + place_of(at, n)) = pack_bf16x8(v);
}
__device__ __forceinline__ void store(const Share& at, const float (&v)[8], int n, float* out) {
  if (!at.mine) return;
  float4* to = reinterpret_cast<float4*>(out + place_of(at, n));
  to[0] = make_float4(v[0], v[1], v[2], v[3]);
  to[1] = make_float4(v[4], v[5], v[6], v[7]);
}

// The best channel of each row in this block. `values` and `places` are [rows, blocks].
__device__ __forceinline__ void keep_best(const Share& at, const float (&v)[8], int rows, int blocks,
                                          float* values, int* places) {
  DYNAMIC_SHARED(uint4, ring);
  const int lane = threadIdx.x % 32;
  // Behind the results, in the warp's own part of the ring.
  const auto of_warp = [&](int warp) { return reinterpret_cast<Best*>(ring + warp * kChannelBytes + 4 * kPitch); };
  Best best = {-kInfinity, kNowhere};
  if (at.mine) {
#pragma unroll
    for (int j = 0; j < 8; j++) best = better(best, {v[j], at.channel + j});
  }
  best = best_of(best, 2);
  if (lane % 2 == 0) of_warp(threadIdx.x / 32)[lane / 2] = best;
  __syncthreads();
  const int row = threadIdx.x;
  if (row >= rows) return;
  best = of_warp(0)[row];
  for (int w = 1; w < static_cast<int>(blockDim.x / 32); w++) best = better(best, of_warp(w)[row]);
  values[row * blocks + blockIdx.x] = best.value;
  places[row * blocks + blockIdx.x] = best.place;
}
