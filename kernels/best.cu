// The last step to a row's best value, behind kernels that leave one for each of their blocks.
#include "best.cuh"

// `best` is the place of the row's largest value, the first of several, and `top` that value; where
// it is not finite there is no best, and the place is -1. Grid (rows).
extern "C" __global__ void __launch_bounds__(256) best_of_blocks(
    const float* __restrict__ values,  // [rows, blocks]
    const int* __restrict__ places,    // [rows, blocks]
    int* __restrict__ best,            // [rows]
    float* __restrict__ top,           // [rows]
    int rows, int blocks) {
  __shared__ float warp_values[8];
  __shared__ int warp_places[8];
  const size_t row = static_cast<size_t>(blockIdx.x) * blocks;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Best mine = {-kInfinity, kNowhere};
  for (int i = threadIdx.x; i < blocks; i += blockDim.x) mine = better(mine, {values[row + i], places[row + i]});
  mine = best_of(mine, 32);
  if (lane == 0) warp_values[warp] = mine.value, warp_places[warp] = mine.place;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < static_cast<int>(blockDim.x / 32); w++) mine = better(mine, {warp_values[w], warp_places[w]});
  best[blockIdx.x] = fabsf(mine.value) < kInfinity ? mine.place : -1;
  top[blockIdx.x] = mine.value;
}
