// What sampling and acceptance share: a request's random numbers, draws from a row, and results over
// a block. The numbers are those of runtime/choices.py, bit for bit.
//
// Chances are added up as integers. Those come to the same in any order, so a draw depends neither on
// the size of a block nor on who was first, and no GPU is slow at them, as many are at float64. The
// runtime's float64 sums over n values are off by up to n * 2^-53 of the total; the two draw
// different tokens only where a number falls that close to the border between them. Chances below
// 2^-62 are never drawn.
#pragma once
#include "best.cuh"

using Units = unsigned long long;

constexpr int kChanceBits = 62;  // two bits are left for what rounding adds to a sum of 1
constexpr int kWeightBits = 44;  // room for a million weights of 1

enum Purpose : unsigned { kForDraft = 1, kForAccept = 2, kForTarget = 3, kPurposes = 3 };

__device__ __forceinline__ Units mixed(Units word) {
  word += 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}

// The 53 random bits for the token at `place`; a number in [0, 1) when divided by 2^53.
__device__ __forceinline__ Units random_bits(Units seed, int place, Purpose purpose) {
  return mixed(mixed(seed) ^ mixed(static_cast<Units>(place) * kPurposes + purpose)) >> 11;
}

// floor(value * 2^kBits) of a value in [0, 2); anything else, NaN too, counts nothing.
template <int kBits>
__device__ __forceinline__ Units units(float value) {
  const unsigned bits = __float_as_uint(value), exponent = bits >> 23;
  if (exponent == 0 || exponent > 127) return 0;
  const Units mantissa = (bits & 0x7fffff) | 0x800000;
  const int shift = static_cast<int>(exponent) - 150 + kBits;
  return shift >= 0 ? mantissa << shift : shift > -24 ? mantissa >> -shift : 0;
}

__device__ __forceinline__ Units warp_total(Units value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kFullWarp, value, lanes);
  return value;
}
// Every thread of the block gets these two. Between two uses of one there has to be a barrier.
__device__ __forceinline__ Units block_total(Units value) {
  __shared__ Units of_warp[32];
  value = warp_total(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x / 32); warp++) value += of_warp[warp];
  return value;
}
__device__ __forceinline__ Best best_of_block(Best mine) {
  __shared__ float values[32];
  __shared__ int places[32];
  mine = best_of(mine, 32);
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = mine.value, places[threadIdx.x / 32] = mine.place;
  __syncthreads();
  for (int warp = 0; warp < static_cast<int>(blockDim.x / 32); warp++) mine = better(mine, {values[warp], places[warp]});
  return mine;
}

struct Found {
  int place;   // -1 where all units are 0
  Units rest;  // how far the threshold reaches into that place
};

// The first place up to which more than a threshold of `units_at` come together; that threshold is
// asked for once their total is known, and is below it. Every thread gets the result.
template <class UnitsAt, class Threshold>
__device__ __forceinline__ Found find(int count, const UnitsAt& units_at, const Threshold& threshold_of) {
  __shared__ Units of_part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  int begin = 0, end = count, part;
  bool first = true;
  Units threshold = 0;
  do {
    part = (end - begin + warps - 1) / warps;
    const int from = begin + warp * part, to = min(from + part, end);
    Units sum = 0;
    for (int i = from + lane; i < to; i += 32) sum += units_at(i);
    sum = warp_total(sum);
    __syncthreads();  // the sums before these have been read
    if (lane == 0) of_part[warp] = sum;
    __syncthreads();
    if (first) {
      Units total = 0;
      for (int w = 0; w < warps; w++) total += of_part[w];
      threshold = threshold_of(total);
      first = false;
    }
    int chosen = 0;
    while (chosen < warps - 1 && threshold >= of_part[chosen]) threshold -= of_part[chosen++];
    begin += chosen * part;
    end = min(begin + part, end);
  } while (part > 32 && warps > 1);
  for (; begin < end; begin += 32) {
    const Units mine = begin + lane < end ? units_at(begin + lane) : 0;
    Units reached = mine;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const Units before = __shfl_up_sync(kFullWarp, reached, lanes);
      if (lane >= lanes) reached += before;
    }
    const unsigned votes = __ballot_sync(kFullWarp, reached > threshold);
    if (votes) {
      const int winner = __ffs(votes) - 1;
      return {begin + winner, threshold - __shfl_sync(kFullWarp, reached - mine, winner)};
    }
    threshold -= __shfl_sync(kFullWarp, reached, 31);
  }
  return {-1, 0};
}

// A place, drawn in proportion to `chance_at` by 53 random bits; -1 where there is no chance at all.
template <class ChanceAt>
__device__ __forceinline__ int pick(int count, const ChanceAt& chance_at, Units bits) {
  return find(
             count, [&](int i) { return units<kChanceBits>(chance_at(i)); },
             [&](Units total) { return static_cast<Units>(__umul64hi(bits << 11, total)); })
      .place;
}
