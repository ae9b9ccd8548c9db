// Drafts that a test dictates, put where a walk along the block would leave its own.
#include "device.cuh"

extern "C" __global__ void __launch_bounds__(256) put_script(
    const int* __restrict__ script,  // [requests, width]
    int* __restrict__ tokens,        // [requests, width]
    int requests, int width) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < requests * width; i += gridDim.x * blockDim.x)
    if (i % width) tokens[i] = script[i];
}
