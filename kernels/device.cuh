// All that a kernel includes. Names that stand for one PTX instruction have two meanings: the
// instruction (device_ptx.cuh) on a GPU, and a call of the simulator (host/device_host.h) under
// g++.
#pragma once

#if !defined(DSPARK_HOST)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

#if defined(__CUDACC_RTC__)  // NVRTC has no <stdint.h>
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

using bf16 = __nv_bfloat16;
using fp8 = __nv_fp8_e4m3;

// Bulk copies and mbarriers are there.
#if defined(DSPARK_HOST) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define DSPARK_HAS_BULK 1
#else
#define DSPARK_HAS_BULK 0
#endif

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000u);  // NVRTC has no other constant

__device__ __forceinline__ float to_float(bf16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ bf16 to_bf16(float value) { return __float2bfloat16_rn(value); }
__device__ __forceinline__ half to_half(float value) { return __float2half_rn(value); }

// A bf16 is the upper half of a float; the first of two is the lower half of the word.
__device__ __forceinline__ float2 unpack_bf16x2(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
__device__ __forceinline__ void unpack_bf16x8(const uint4& packed, float (&values)[8]) {
  const float2 a = unpack_bf16x2(packed.x), b = unpack_bf16x2(packed.y);
  const float2 c = unpack_bf16x2(packed.z), d = unpack_bf16x2(packed.w);
  values[0] = a.x, values[1] = a.y, values[2] = b.x, values[3] = b.y;
  values[4] = c.x, values[5] = c.y, values[6] = d.x, values[7] = d.y;
}

#if defined(DSPARK_HOST)
#include "host/device_host.h"
#else
#include "device_ptx.cuh"
#endif

__device__ __forceinline__ uint4 pack_bf16x8(const float (&values)[8]) {
  return make_uint4(pack_bf16x2(values[0], values[1]), pack_bf16x2(values[2], values[3]),
                    pack_bf16x2(values[4], values[5]), pack_bf16x2(values[6], values[7]));
}
__device__ __forceinline__ void unpack_fp8x4(uint32_t packed, float (&values)[4]) {
  const float2 low = unpack_fp8x2(static_cast<uint16_t>(packed & 0xffff));
  const float2 high = unpack_fp8x2(static_cast<uint16_t>(packed >> 16));
  values[0] = low.x, values[1] = low.y, values[2] = high.x, values[3] = high.y;
}

// Every lane gets the result, and every lane must take part.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kFullWarp, value, lanes);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, lanes));
  return value;
}
