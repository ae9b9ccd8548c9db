// The largest of many values and where it was: the first place of several, and NaN above all.
#pragma once
#include "device.cuh"

struct Best {
  float value;
  int place;
};

constexpr int kNowhere = 0x7fffffff;  // behind every place

__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool alike = a_nan ? b_nan : a.value == b.value;
  const bool second = alike ? b.place < a.place : b_nan || b.value > a.value;
  return second ? b : a;
}

// Of this lane and those whose number differs in bits below `lanes`. Every lane must take part.
__device__ __forceinline__ Best best_of(Best mine, int lanes) {
  for (int other = lanes / 2; other > 0; other /= 2)
    mine = better(mine, {__shfl_xor_sync(kFullWarp, mine.value, other), __shfl_xor_sync(kFullWarp, mine.place, other)});
  return mine;
}
