// bf16, half and fp8 (e4m3) as CUDA has them: round to nearest, ties to even, and no conversion
// that is not spelt out, so that what compiles here converts where the author says so on a GPU too.
#pragma once
#include "runtime.h"

SIM_INLINE float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
SIM_INLINE unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
SIM_INLINE float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
SIM_INLINE int __float_as_int(float value) { return __builtin_bit_cast(int, value); }

namespace sim {

// `bits` without its lowest `drop` bits (at most 31), rounded to nearest, ties to even.
constexpr uint32_t round_off(uint32_t bits, int drop) {
  const uint32_t half = uint32_t(1) << (drop - 1);
  return (bits + half - 1 + (bits >> drop & 1)) >> drop;
}

constexpr uint16_t bf16_bits(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // CUDA's one NaN
  return uint16_t(round_off(bits, 16));
}

// A float's magnitude as a format with `mantissa` bits whose smallest normal has the exponent
// `lowest`; a carry out of the mantissa moves on into the exponent, as it should.
constexpr uint32_t narrow(uint32_t magnitude, int mantissa, int lowest) {
  const int exponent = int(magnitude >> 23) - 127, drop = 23 - mantissa;
  if (exponent >= lowest) return round_off(magnitude - (uint32_t(lowest - 1 + 127) << 23), drop);
  const int shift = drop + lowest - exponent;
  return shift > 25 ? 0 : round_off((magnitude & 0x7fffff) | 0x800000, shift);
}

constexpr uint16_t half_bits(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x47800000) return uint16_t(sign | 0x7c00);  // 65536 and more, infinity too
  return uint16_t(sign | narrow(magnitude, 10, -14));
}

// Saturating, as `__NV_SATFINITE` does: beyond 448, infinity included, is 448.
constexpr uint8_t e4m3_bits(uint32_t bits) {
  const uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;
  if (magnitude >= 0x43e00000) return uint8_t(sign | 0x7e);  // 448 and more
  return uint8_t(sign | narrow(magnitude, 3, -6));
}

// The value of a magnitude (no sign bit) of such a format.
SIM_INLINE float widen(uint32_t magnitude, int mantissa, int lowest) {
  const uint32_t exponent = magnitude >> mantissa;
  if (exponent == 0)
    return float(magnitude) * __uint_as_float(uint32_t(lowest - mantissa + 127) << 23);
  return __uint_as_float((magnitude << (23 - mantissa)) + (uint32_t(lowest - 1 + 127) << 23));
}

}  // namespace sim

struct alignas(2) __nv_bfloat16 {
  uint16_t sim_bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
struct alignas(2) __half {
  uint16_t sim_bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(1) __nv_fp8_e4m3 {
  uint8_t __x;
};
using half = __half;
using half2 = __half2;

SIM_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
SIM_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.sim_bits; }
SIM_INLINE __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {sim::bf16_bits(__float_as_uint(value))};
}
SIM_INLINE __nv_bfloat16 __float2bfloat16(float value) { return __float2bfloat16_rn(value); }
SIM_INLINE float __bfloat162float(__nv_bfloat16 value) {
  return __uint_as_float(unsigned(value.sim_bits) << 16);
}

SIM_INLINE __half __ushort_as_half(unsigned short bits) { return {bits}; }
SIM_INLINE unsigned short __half_as_ushort(__half value) { return value.sim_bits; }
SIM_INLINE __half __float2half_rn(float value) { return {sim::half_bits(__float_as_uint(value))}; }
SIM_INLINE __half __float2half(float value) { return __float2half_rn(value); }
SIM_INLINE float __half2float(__half value) {
  const unsigned sign = unsigned(value.sim_bits & 0x8000) << 16,
                 magnitude = value.sim_bits & 0x7fff;
  const unsigned bits = magnitude >= 0x7c00 ? 0x7f800000 | (magnitude & 0x3ff) << 13
                                            : __float_as_uint(sim::widen(magnitude, 10, -14));
  return __uint_as_float(sign | bits);
}
