// Barriers of a block, used well and badly.
#include "device.cuh"

extern "C" __global__ void counts(const int* in, int* out) {
  const int i = threadIdx.x;
  out[i] = __syncthreads_count(in[i] > 4);
  out[blockDim.x + i] = __syncthreads_or(in[i] == 3) != 0;
  out[2 * blockDim.x + i] = __syncthreads_and(in[i] >= 0) != 0;
}

// Some threads leave before the barrier, which waits for the rest alone.
extern "C" __global__ void early_exit(int* out, int staying) {
  __shared__ int seen[64];
  const int i = threadIdx.x;
  if (i >= staying) return;
  seen[i] = i;
  __syncthreads();
  out[i] = seen[staying - 1 - i];
}

// One warp fills a stage while another reads the one before.
extern "C" __global__ void producer(const int* in, int* out, int rounds) {
  __shared__ int stages[2][32];
  const int lane = threadIdx.x % 32;
  for (int round = 0; round < rounds; round++) {
    const int stage = round % 2;
    if (threadIdx.x < 32) {
      if (round >= 2) barrier_sync(3 + stage, 64);
      stages[stage][lane] = in[round * 32 + lane];
      barrier_arrive(1 + stage, 64);
    } else {
      barrier_sync(1 + stage, 64);
      out[round * 32 + lane] = stages[stage][31 - lane];
      if (round + 2 < rounds) barrier_arrive(3 + stage, 64);
    }
  }
}

extern "C" __global__ void divergent(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    out[threadIdx.x] = 1;
    __syncthreads();
  }
}

extern "C" __global__ void one_warp_waits(int* out) {
  if (threadIdx.x < 32) barrier_sync(5, 64);
  __syncthreads();
  out[threadIdx.x] = 1;
}

extern "C" __global__ void other_counts(int* out) {
  barrier_sync(2, threadIdx.x < 32 ? 64 : 32);
  out[threadIdx.x] = 1;
}

extern "C" __global__ void odd_count(int* out) {
  barrier_sync(2, 48);
  out[threadIdx.x] = 1;
}

extern "C" __global__ void no_such_barrier(int* out) {
  barrier_sync(16, 32);
  out[threadIdx.x] = 1;
}
