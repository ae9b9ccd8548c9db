// Conversions, each value by itself.
#include "device.cuh"

extern "C" __global__ void narrow(const float* from, uint16_t* to_bf, uint16_t* to_h, uint8_t* to_8,
                                  int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    to_bf[i] = __bfloat16_as_ushort(to_bf16(from[i]));
    to_h[i] = __half_as_ushort(to_half(from[i]));
    reinterpret_cast<fp8*>(to_8)[i] = to_fp8(from[i]);
  }
}

extern "C" __global__ void widen(const uint16_t* codes, float* from_bf, float* from_h,
                                 float* from_8, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    from_bf[i] = to_float(__ushort_as_bfloat16(codes[i]));
    from_h[i] = to_float(__ushort_as_half(codes[i]));
    if (i < 256) from_8[i] = to_float(reinterpret_cast<const fp8*>(codes)[2 * i]);
  }
}

extern "C" __global__ void packs(const uint4* from, uint4* to, float* values, uint32_t* pairs) {
  float eight[8], four[4];
  unpack_bf16x8(from[0], eight);
  to[0] = pack_bf16x8(eight);
  for (int i = 0; i < 8; i++) values[i] = eight[i];
  unpack_fp8x4(from[1].x, four);
  for (int i = 0; i < 4; i++) values[8 + i] = four[i];
  const float2 two = unpack_bf16x2(from[0].y);
  pairs[0] = pack_bf16x2(two.x, two.y);
}
