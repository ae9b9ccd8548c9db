// Everything that the lanes of a warp do together.
#include "device.cuh"

extern "C" __global__ void shuffles(const int* in, int* out, int width) {
  const int lane = threadIdx.x, value = in[lane];
  out[lane] = __shfl_sync(kFullWarp, value, lane * 7 + 3, width);
  out[32 + lane] = __shfl_up_sync(kFullWarp, value, 3, width);
  out[64 + lane] = __shfl_down_sync(kFullWarp, value, 3, width);
  out[96 + lane] = __shfl_xor_sync(kFullWarp, value, 5, width);
}

extern "C" __global__ void wide_shuffles(const double* in, double* out, float* sums) {
  const int lane = threadIdx.x;
  out[lane] = __shfl_sync(kFullWarp, in[lane], 31 - lane);
  sums[lane] = warp_sum(static_cast<float>(in[lane]));
  sums[32 + lane] = warp_max(static_cast<float>(in[lane]));
}

// The even and the odd lanes go separate ways, and each half of the warp is by itself.
extern "C" __global__ void votes(const int* in, unsigned* out) {
  const int lane = threadIdx.x, value = in[lane];
  const unsigned mask = lane % 2 ? 0xaaaaaaaau : 0x55555555u;
  if (lane % 2) {
    out[lane] = __ballot_sync(mask, value > 10);
  } else {
    out[lane] = __ballot_sync(mask, value > 20);
  }
  out[32 + lane] = __any_sync(mask, value == 7);
  out[64 + lane] = __all_sync(mask, value != 7);
  out[96 + lane] = __match_any_sync(kFullWarp, value % 5);
  int all;
  out[128 + lane] = __match_all_sync(mask, lane % 2, &all);
  out[160 + lane] = all;
  out[192 + lane] = __match_all_sync(kFullWarp, lane % 2, &all) + all;
}

extern "C" __global__ void reductions(const int* in, int* out) {
  const int lane = threadIdx.x, value = in[lane];
  const unsigned bits = static_cast<unsigned>(value);
  out[lane] = __reduce_add_sync(kFullWarp, value);
  out[32 + lane] = __reduce_min_sync(kFullWarp, value);
  out[64 + lane] = __reduce_max_sync(kFullWarp, value);
  out[96 + lane] = static_cast<int>(__reduce_min_sync(kFullWarp, bits));
  out[128 + lane] = static_cast<int>(__reduce_max_sync(kFullWarp, bits));
  out[160 + lane] = static_cast<int>(__reduce_and_sync(kFullWarp, bits));
  out[192 + lane] = static_cast<int>(__reduce_or_sync(kFullWarp, bits));
  out[224 + lane] = static_cast<int>(__reduce_xor_sync(kFullWarp, bits));
}

// A lane that has ended is not waited for; what it would have brought is undefined.
extern "C" __global__ void after_an_exit(float* out) {
  const int lane = threadIdx.x;
  if (lane == 9) return;
  out[lane] = __shfl_sync(kFullWarp, static_cast<float>(lane), lane == 3 ? 9 : lane);
}

extern "C" __global__ void outside_its_mask(int* out) {
  out[threadIdx.x] = __shfl_sync(0xfffffffeu, 1, 1);
}

extern "C" __global__ void other_masks(int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xfffffff0u;
  out[threadIdx.x] = __shfl_sync(mask, 1, 20);
}

extern "C" __global__ void other_operations(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_sync(kFullWarp, 1, 0);
  } else {
    out[threadIdx.x] = __any_sync(kFullWarp, 1);
  }
}

extern "C" __global__ void half_a_warp(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(kFullWarp, 1, 0);
  while (load_acquire(reinterpret_cast<unsigned*>(out + 32)) == 0) __nanosleep(100);
}
