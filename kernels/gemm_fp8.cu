// The kernels of gemm.cu for weights of fp8, each of which is worth the scale of its channel times
// itself; k is a multiple of 16.
#include "gemm_out.cuh"

// out = x times the weights.
extern "C" __global__ void __launch_bounds__(128) gemm_fp8(
    const fp8* __restrict__ weights,   // [n, k]
    const float* __restrict__ scales,  // [n]
    const bf16* __restrict__ x,        // [rows, k]
    bf16* __restrict__ out,            // [rows, n]
    int rows, int n, int k) {
  float v[8];
  const Share at = multiply(weights, scales, x, rows, n, k, k, v);
  store(at, v, n, out);
}

// The same in float32, as logits are wanted.
extern "C" __global__ void __launch_bounds__(128) gemm_f32_fp8(
    const fp8* __restrict__ weights,   // [n, k]
    const float* __restrict__ scales,  // [n]
    const bf16* __restrict__ x,        // [rows, k]
    float* __restrict__ out,           // [rows, n]
    int rows, int n, int k) {
  float v[8];
  const Share at = multiply(weights, scales, x, rows, n, k, k, v);
  store(at, v, n, out);
}

// The same of x in panels: hidden states of several layers, one array behind the other, as if each
// row's were joined. The width is a multiple of 8.
extern "C" __global__ void __launch_bounds__(128) gemm_panels_fp8(
    const fp8* __restrict__ weights,   // [n, panels * width]
    const float* __restrict__ scales,  // [n]
    const bf16* __restrict__ x,        // [panels, rows, width]
    bf16* __restrict__ out,            // [rows, n]
    int rows, int n, int panels, int width) {
  float v[8];
  const Share at = multiply<fp8, false, true>(weights, scales, x, rows, n, panels * width, width, v);
  store(at, v, n, out);
}

// The same with a bias, which every row gets.
extern "C" __global__ void __launch_bounds__(128) gemm_bias_fp8(
    const fp8* __restrict__ weights,   // [n, k]
    const float* __restrict__ scales,  // [n]
    const bf16* __restrict__ x,        // [rows, k]
    const bf16* __restrict__ bias,     // [n]
    bf16* __restrict__ out,            // [rows, n]
    int rows, int n, int k) {
  float v[8];
  const Share at = multiply(weights, scales, x, rows, n, k, k, v);
  add(at, bias + at.channel, v);
  store(at, v, n, out);
}

// out = stream + x times the weights. They may be one array, or, where the stream is to be kept, two.
extern "C" __global__ void __launch_bounds__(128) gemm_add_fp8(
    const fp8* __restrict__ weights,   // [n, k]
    const float* __restrict__ scales,  // [n]
    const bf16* __restrict__ x,        // [rows, k]
    const bf16* stream,                // [rows, n]
    bf16* out,                         // [rows, n]
    int rows, int n, int k) {
  float v[8];
  const Share at = multiply(weights, scales, x, rows, n, k, k, v);
  add(at, stream + place_of(at, n), v);
  store(at, v, n, out);
}

// out = SiLU(gate) * up, for n gates and n ups. A warp has eight channels of each.
extern "C" __global__ void __launch_bounds__(128) gemm_silu_mul_fp8(
    const fp8* __restrict__ weights,   // [2 * n, k]
    const float* __restrict__ scales,  // [2 * n]
    const bf16* __restrict__ x,        // [rows, k]
    bf16* __restrict__ out,            // [rows, n]
    int rows, int n, int k) {
  float v[8];
  const Share at = multiply<fp8, true>(weights, scales, x, rows, n, k, k, v);
  store(at, v, n, out);
}

// The best of each block's channels, for best_of_blocks: what gemm_f32_fp8 would have put out is only
// looked at.
extern "C" __global__ void __launch_bounds__(128) gemm_argmax_fp8(
    const fp8* __restrict__ weights,   // [n, k]
    const float* __restrict__ scales,  // [n]
    const bf16* __restrict__ x,        // [rows, k]
    float* __restrict__ values,        // [rows, blocks]
    int* __restrict__ places,          // [rows, blocks]
    int rows, int n, int k, int blocks) {
  float v[8];
  const Share at = multiply(weights, scales, x, rows, n, k, k, v);
  keep_best(at, v, rows, blocks, values, places);
}
