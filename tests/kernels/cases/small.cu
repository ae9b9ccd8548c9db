// Kernels that do next to nothing, for the tests of launches and graphs.
#include "device.cuh"

extern "C" __global__ void __launch_bounds__(64) scale(
    const bf16* __restrict__ x,  // [rows, width]
    float* out,                  // [rows, width]
    int rows, int width, float factor) {
  for (int i = threadIdx.x; i < rows * width; i += blockDim.x) out[i] = to_float(x[i]) * factor;
}

// As a cache is appended to by a position that the launch carries, and by one that memory holds.
extern "C" __global__ void append_by_value(int* cache, /* [size] */ int size, int position, int value) {
  if (threadIdx.x == 0 && position < size) cache[position] = value;
}
extern "C" __global__ void append_from_memory(
    int* cache,           // [size]
    const int* position,  // [1]
    const int* value,     // [1]
    int size) {
  if (threadIdx.x == 0 && *position < size) cache[*position] = *value;
}
extern "C" __global__ void advance(int* position /* [1] */) {
  if (threadIdx.x == 0) *position += 1;
}
extern "C" __global__ void wide(
    int64_t* out,  // [2]
    int64_t a, uint64_t b) {
  if (threadIdx.x == 0) out[0] = a, out[1] = static_cast<int64_t>(b);
}
