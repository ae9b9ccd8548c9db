// The functions of CUDA's arithmetic that kernels may use. What is approximate on a GPU (`__expf`,
// `rsqrtf`, ...) is as exact here as the C library is.
#pragma once
#include "runtime.h"

extern "C" {
float expf(float) noexcept;
float exp2f(float) noexcept;
float expm1f(float) noexcept;
float logf(float) noexcept;
float log2f(float) noexcept;
float log1pf(float) noexcept;
float sqrtf(float) noexcept;
float powf(float, float) noexcept;
float sinf(float) noexcept;
float cosf(float) noexcept;
float tanhf(float) noexcept;
float fabsf(float) noexcept;
float floorf(float) noexcept;
float ceilf(float) noexcept;
float rintf(float) noexcept;
float truncf(float) noexcept;
float fmodf(float, float) noexcept;
float fmaf(float, float, float) noexcept;
float fminf(float, float) noexcept;
float fmaxf(float, float) noexcept;
double exp(double) noexcept;
double log(double) noexcept;
double sqrt(double) noexcept;
double fabs(double) noexcept;
}

SIM_INLINE bool isnan(float value) { return __builtin_isnan(value); }
SIM_INLINE bool isinf(float value) { return __builtin_isinf(value); }
SIM_INLINE bool isfinite(float value) { return __builtin_isfinite(value); }
SIM_INLINE float rsqrtf(float value) { return 1.0f / sqrtf(value); }
SIM_INLINE float __expf(float value) { return expf(value); }
SIM_INLINE float __logf(float value) { return logf(value); }
SIM_INLINE float __fdividef(float over, float under) { return over / under; }
SIM_INLINE float __frcp_rn(float value) { return 1.0f / value; }
SIM_INLINE float __fsqrt_rn(float value) { return sqrtf(value); }
SIM_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
// A GPU's compiler may fuse a product and a sum; these two it must not.
SIM_INLINE float __fmul_rn(float a, float b) { return a * b; }
SIM_INLINE float __fadd_rn(float a, float b) { return a + b; }
SIM_INLINE float __saturatef(float value) {
  return value >= 1.0f ? 1.0f : value > 0.0f ? value : 0.0f;
}

SIM_INLINE int __popc(unsigned value) { return __builtin_popcount(value); }
SIM_INLINE int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
SIM_INLINE int __clz(int value) { return value ? __builtin_clz(unsigned(value)) : 32; }
SIM_INLINE int __ffs(int value) { return __builtin_ffs(value); }
SIM_INLINE unsigned __brev(unsigned value) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; bit++) reversed |= (value >> bit & 1) << (31 - bit);
  return reversed;
}
SIM_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned(static_cast<unsigned long long>(a) * b >> 32);
}
SIM_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
SIM_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  shift &= 31;
  return shift ? high << shift | low >> (32 - shift) : high;
}
SIM_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  shift &= 31;
  return shift ? low >> shift | high << (32 - shift) : low;
}

#define SIM_LEAST_AND_MOST(type)                                \
  SIM_INLINE type min(type a, type b) { return b < a ? b : a; } \
  SIM_INLINE type max(type a, type b) { return a < b ? b : a; }
SIM_LEAST_AND_MOST(int)
SIM_LEAST_AND_MOST(unsigned)
SIM_LEAST_AND_MOST(long)
SIM_LEAST_AND_MOST(unsigned long)
SIM_LEAST_AND_MOST(long long)
SIM_LEAST_AND_MOST(unsigned long long)
#undef SIM_LEAST_AND_MOST
SIM_INLINE float min(float a, float b) { return fminf(a, b); }
SIM_INLINE float max(float a, float b) { return fmaxf(a, b); }
SIM_INLINE int abs(int value) { return value < 0 ? -value : value; }
