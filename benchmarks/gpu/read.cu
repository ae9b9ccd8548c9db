// Kernels that measure a machine, and not ours: how fast its memory is read, and what a launch costs.
#include "device.cuh"

constexpr int kAhead = 8;  // loads of a thread that are under way at once

// Reads everything once, 16 bytes a load. What a thread read it adds up, so that nothing can be left out.
extern "C" __global__ void __launch_bounds__(256) read_all(
    const uint32_t* __restrict__ words,  // [4 * vectors]
    uint32_t* __restrict__ sums,         // [threads]
    long long vectors, int threads) {
  const uint4* from = reinterpret_cast<const uint4*>(words);
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t sum = 0;
  long long i = thread;
  for (; i + (kAhead - 1LL) * threads < vectors; i += static_cast<long long>(kAhead) * threads) {
    uint4 found[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; j++) found[j] = load_streaming(from + i + static_cast<long long>(j) * threads);
#pragma unroll
    for (int j = 0; j < kAhead; j++) sum += found[j].x + found[j].y + found[j].z + found[j].w;
  }
  for (; i < vectors; i += threads) {
    const uint4 found = load_streaming(from + i);
    sum += found.x + found.y + found.z + found.w;
  }
  if (thread < threads) sums[thread] = sum;
}

// Next to nothing, once for each launch.
extern "C" __global__ void __launch_bounds__(32) count_launch(
    int* count  // [1]
) {
  if (threadIdx.x == 0) *count += 1;
}
