// Where threads may not reach.
#include "device.cuh"

extern "C" __global__ void read_at(const float* in, float* out, int index) { out[0] = in[index]; }
extern "C" __global__ void write_at(float* out, int index) { out[index] = 1.0f; }

extern "C" __global__ void wide_read_at(const float* in, float* out, int index) {
  const float4 value = *reinterpret_cast<const float4*>(in + index);
  out[0] = value.x + value.w;
}

extern "C" __global__ void shared_write_at(float* out, int index) {
  DYNAMIC_SHARED(float, box);
  box[index] = 1.0f;
  out[0] = box[index];
}

extern "C" __global__ void static_write_at(float* out, int index) {
  __shared__ float box[8];
  box[index] = 1.0f;
  out[0] = box[index];
}

// Nobody has written what is read.
extern "C" __global__ void unwritten(float* out) {
  DYNAMIC_SHARED(float, dynamic);
  __shared__ float fixed[4];
  __shared__ bf16 small[2];
  out[0] = dynamic[3];
  out[1] = fixed[3];
  out[2] = to_float(small[1]);
}

// Each block has shared memory of its own, although others are alive at the same time.
extern "C" __global__ void own_shared(int* out) {
  DYNAMIC_SHARED(int, dynamic);
  __shared__ int fixed[32];
  for (int round = 0; round < 3; round++) {
    dynamic[threadIdx.x] = fixed[31 - threadIdx.x] = blockIdx.x * 100 + threadIdx.x + round;
    __syncthreads();
    out[(round * gridDim.x + blockIdx.x) * 32 + threadIdx.x] =
        dynamic[31 - threadIdx.x] * 1000 + fixed[threadIdx.x];
    __syncthreads();
  }
}

extern "C" __global__ void traffic(const uint4* weights, const float* scale, float* out, int rows) {
  float sum = 0;
  for (int i = threadIdx.x; i < rows; i += blockDim.x) {
    float v[8];
    unpack_bf16x8(load_streaming(weights + blockIdx.x * rows + i), v);
    sum += v[0] * scale[0];
  }
  out[(blockIdx.x * blockDim.x + threadIdx.x) * 8] = sum;
}

extern "C" __global__ void overflow(int* out, int value) { out[0] = value + out[1]; }
extern "C" __global__ void shift(int* out, int by) { out[0] = 1 << by; }
extern "C" __global__ void divide(int* out, int by) { out[0] = 100 / by; }
extern "C" __global__ void trapped(int* out) {
  if (out[0] == 0) __trap();
}

// A table of constants, and a local array with an index that is not known beforehand.
__constant__ float kTable[4] = {1.0f, 2.0f, 4.0f, 8.0f};
extern "C" __global__ void local_array(float* out, int index) {
  float values[8];
  for (int i = 0; i < 8; i++) values[i] = kTable[i % 4] + i;
  float* chosen = values;
  chosen[index] = 0.5f;
  float sum = 0;
  for (int i = 0; i < 8; i++) sum += chosen[i];
  out[0] = sum;
}
