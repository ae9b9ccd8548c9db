// Fragments in and out of tensor-core instructions, lane by lane.
#include "device.cuh"

extern "C" __global__ void multiply(const uint32_t* a, const uint32_t* b, float* d) {
  const int lane = threadIdx.x;
  uint32_t left[4], right[2];
  float sums[4];
  for (int i = 0; i < 4; i++) left[i] = a[lane * 4 + i], sums[i] = d[lane * 4 + i];
  for (int i = 0; i < 2; i++) right[i] = b[lane * 2 + i];
  mma_m16n8k16(sums, left, right);
  for (int i = 0; i < 4; i++) d[lane * 4 + i] = sums[i];
}

// `in` holds four 8x8 matrices, `out` what each lane gets of one, two and four, plain and
// transposed.
extern "C" __global__ void load_matrices(const uint4* in, uint32_t* out) {
  __shared__ uint4 rows[32];
  const int lane = threadIdx.x;
  rows[lane] = in[lane];
  __syncwarp();
  uint32_t one[1], two[2], four[4];
  uint32_t* mine = out + lane * 14;
  ldmatrix_x1(one, rows + lane % 8);
  mine[0] = one[0];
  ldmatrix_x2(two, rows + lane % 16);
  mine[1] = two[0], mine[2] = two[1];
  ldmatrix_x4(four, rows + lane);
  for (int i = 0; i < 4; i++) mine[3 + i] = four[i];
  ldmatrix_x1_trans(one, rows + lane % 8);
  mine[7] = one[0];
  ldmatrix_x2_trans(two, rows + lane % 16);
  mine[8] = two[0], mine[9] = two[1];
  ldmatrix_x4_trans(four, rows + lane);
  for (int i = 0; i < 4; i++) mine[10 + i] = four[i];
}

extern "C" __global__ void load_misaligned(uint32_t* out) {
  DYNAMIC_SHARED(char, bytes);
  uint32_t one[1];
  ldmatrix_x1(one, bytes + 16 * threadIdx.x + 8);
  out[threadIdx.x] = one[0];
}

extern "C" __global__ void load_global(const uint4* in, uint32_t* out) {
  uint32_t one[1];
  ldmatrix_x1(one, in + threadIdx.x);
  out[threadIdx.x] = one[0];
}

extern "C" __global__ void multiply_with_half_a_warp(float* d) {
  if (threadIdx.x >= 16) return;
  uint32_t left[4] = {0, 0, 0, 0}, right[2] = {0, 0};
  float sums[4] = {0, 0, 0, 0};
  mma_m16n8k16(sums, left, right);
  d[threadIdx.x] = sums[0];
}
