// CUDA C++ for g++: forced in front of every .cu file with `-include`.
#pragma once
#include "runtime.h"

#define DSPARK_HOST 1

// A kernel that is inlined into the code that calls it would share its instrumentation.
#define __global__ __attribute__((noinline, used))
#define __device__
#define __host__
#define __constant__ static const
// One OS thread runs everything, so its thread-local variables are the static shared memory, in
// one piece that can be poisoned, watched, and swapped when another block has its turn. `used`, or
// the compiler would take a variable that nobody writes for zero.
#define __shared__ static thread_local __attribute__((used))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

#define threadIdx (::sim::position(::sim::Place::thread))
#define blockIdx (::sim::position(::sim::Place::block))
#define blockDim (::sim::position(::sim::Place::block_size))
#define gridDim (::sim::position(::sim::Place::grid_size))
#define warpSize 32

#define SIM_VECTOR(type, name, align2, align4)                         \
  struct alignas(align2) name##2 { type x, y; };                       \
  struct alignas(align4) name##4 { type x, y, z, w; };                 \
  SIM_INLINE name##2 make_##name##2(type x, type y) { return {x, y}; } \
  SIM_INLINE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
SIM_VECTOR(float, float, 8, 16)
SIM_VECTOR(int, int, 8, 16)
SIM_VECTOR(unsigned, uint, 8, 16)
SIM_VECTOR(short, short, 4, 8)
SIM_VECTOR(unsigned short, ushort, 4, 8)
SIM_VECTOR(signed char, char, 2, 4)
SIM_VECTOR(unsigned char, uchar, 2, 4)
#undef SIM_VECTOR
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};

#include "arithmetic.h"
#include "numbers.h"
#include "warp.h"

// ---- kernels by name, for the launch

namespace sim {

// Thread-local storage is found by the address of something in it, so something always is.
inline thread_local long tls_anchor;
inline void* anchor() { return &tls_anchor; }

template <class T>
struct Kind {
  static_assert(__is_trivially_copyable(T) && sizeof(T) <= 8,
                "a parameter is a pointer or a number");
  static constexpr char value = __is_same(T, bool) ? 'b' : T(1) / T(2) == T(0) ? 'i' : 'f';
};
template <class T>
struct Kind<T*> {
  static constexpr char value = 'p';
};

template <size_t...>
struct Indices {};

template <class... T>
struct Signature {
  static constexpr Parameter parameters[sizeof...(T) + 1] = {{Kind<T>::value, sizeof(T)}..., {}};
  template <void (*kernel)(T...)>
  static void run(void* const* arguments) {
    call<kernel>(arguments, Indices<__integer_pack(sizeof...(T))...>());
  }
  // Reading the arguments is the launch's doing, not the kernel's.
  template <void (*kernel)(T...), size_t... I>
  __attribute__((no_sanitize("thread", "undefined", "address"))) static void call(
      void* const* arguments, Indices<I...>) {
    kernel(*static_cast<T*>(arguments[I])...);
  }
};
template <class... T>
Signature<T...> signature_of(void (*)(T...));

}  // namespace sim

#if defined(__SANITIZE_THREAD__)
#define SIM_CHECKED true
#else
#define SIM_CHECKED false
#endif
// Written behind the source by build.py, once for each kernel.
#define SIM_KERNEL(name)                                                                      \
  static const ::sim::Kernel sim_kernel_##name = {                                            \
      #name, decltype(::sim::signature_of(name))::parameters,                                 \
      sizeof(decltype(::sim::signature_of(name))::parameters) / sizeof(::sim::Parameter) - 1, \
      &decltype(::sim::signature_of(name))::run<&name>};                                      \
  static const int sim_added_##name =                                                         \
      ::sim::add_kernel(&sim_kernel_##name, SIM_CHECKED, &::sim::anchor);
