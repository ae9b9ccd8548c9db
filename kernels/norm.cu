// Root-mean-square norm of rows, alone or after adding them to the residual stream.
//
// One block a row. The row waits in shared memory for its own scale, so it is read once.
#include "device.cuh"

template <bool kAdd>
__device__ __forceinline__ void normalise(const bf16* x, bf16* stream, const bf16* weight,
                                          bf16* out, int width, float eps) {
  DYNAMIC_SHARED(uint4, kept);  // width / 8
  __shared__ float partial[32];
  const int vectors = width / 8, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t row = static_cast<size_t>(blockIdx.x) * vectors;
  const uint4* from = reinterpret_cast<const uint4*>(x) + row;
  uint4* sums = reinterpret_cast<uint4*>(stream) + row;
  float squares = 0.f;
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
    uint4 packed = from[i];
    float v[8];
    unpack_bf16x8(packed, v);
    if (kAdd) {
      float before[8];
      unpack_bf16x8(sums[i], before);
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] += before[j];
      // What is normed is what the stream holds: the rounded sum.
      packed = pack_bf16x8(v);
      sums[i] = packed;
      unpack_bf16x8(packed, v);
    }
    kept[i] = packed;
#pragma unroll
    for (int j = 0; j < 8; j++) squares += v[j] * v[j];
  }
  squares = warp_sum(squares);
  if (lane == 0) partial[warp] = squares;
  __syncthreads();
  float total = 0.f;
  for (int w = 0; w < static_cast<int>(blockDim.x / 32); w++) total += partial[w];
  const float scale = rsqrtf(total / width + eps);
  const uint4* weights = reinterpret_cast<const uint4*>(weight);
  uint4* to = reinterpret_cast<uint4*>(out) + row;
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
    float v[8], w[8];
    unpack_bf16x8(kept[i], v);
    unpack_bf16x8(weights[i], w);
    // Rounded before it is scaled, as the models were trained.
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = to_float(to_bf16(v[j] * scale)) * w[j];
    to[i] = pack_bf16x8(v);
  }
}

// out = x / rms(x) * weight. Grid (rows), shared memory 2 * width bytes, width a multiple of 8.
extern "C" __global__ void __launch_bounds__(256) rms_norm(
    const bf16* __restrict__ x,       // [rows, width]
    const bf16* __restrict__ weight,  // [width]
    bf16* __restrict__ out,           // [rows, width]
    int rows, int width, float eps) {
  normalise<false>(x, nullptr, weight, out, width, eps);
}

// stream += x, then out = stream / rms(stream) * weight; otherwise as rms_norm.
extern "C" __global__ void __launch_bounds__(256) add_rms_norm(
    const bf16* __restrict__ x,       // [rows, width]
    bf16* __restrict__ stream,        // [rows, width]
    const bf16* __restrict__ weight,  // [width]
    bf16* __restrict__ out,           // [rows, width]
    int rows, int width, float eps) {
  normalise<true>(x, stream, weight, out, width, eps);
}
