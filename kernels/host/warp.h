// What threads do together: barriers, warp operations, atomics and fences.
#pragma once
#include "runtime.h"

SIM_INLINE void __syncthreads(int line = __builtin_LINE()) {
  sim::block_barrier(sim::Gather::plain, 0, line);
}
SIM_INLINE int __syncthreads_count(int value, int line = __builtin_LINE()) {
  return sim::block_barrier(sim::Gather::count, value, line);
}
SIM_INLINE int __syncthreads_and(int value, int line = __builtin_LINE()) {
  return sim::block_barrier(sim::Gather::all_of, value, line);
}
SIM_INLINE int __syncthreads_or(int value, int line = __builtin_LINE()) {
  return sim::block_barrier(sim::Gather::any_of, value, line);
}

namespace sim {

template <size_t size>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = uint8_t;
};
template <>
struct BitsOf<2> {
  using type = uint16_t;
};
template <>
struct BitsOf<4> {
  using type = uint32_t;
};
template <>
struct BitsOf<8> {
  using type = uint64_t;
};
template <class T>
SIM_INLINE uint64_t to_bits(T value) {
  return __builtin_bit_cast(typename BitsOf<sizeof(T)>::type, value);
}
template <class T>
SIM_INLINE T from_bits(uint64_t bits) {
  return __builtin_bit_cast(T, static_cast<typename BitsOf<sizeof(T)>::type>(bits));
}
template <class T>
struct As {  // a parameter of type `typename As<T>::type` converts, as CUDA's overloads let it
  using type = T;
};

}  // namespace sim

template <class T>
SIM_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return sim::from_bits<T>(
      sim::shuffle(mask, sim::Shuffle::from, sim::to_bits(value), lane, width));
}
template <class T>
SIM_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return sim::from_bits<T>(
      sim::shuffle(mask, sim::Shuffle::up, sim::to_bits(value), int(delta), width));
}
template <class T>
SIM_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return sim::from_bits<T>(
      sim::shuffle(mask, sim::Shuffle::down, sim::to_bits(value), int(delta), width));
}
template <class T>
SIM_INLINE T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return sim::from_bits<T>(
      sim::shuffle(mask, sim::Shuffle::across, sim::to_bits(value), lanes, width));
}

SIM_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { sim::vote(mask, sim::Vote::sync, 0); }
SIM_INLINE int __any_sync(unsigned mask, int value) {
  return int(sim::vote(mask, sim::Vote::any, value != 0));
}
SIM_INLINE int __all_sync(unsigned mask, int value) {
  return int(sim::vote(mask, sim::Vote::all, value != 0));
}
SIM_INLINE unsigned __ballot_sync(unsigned mask, int value) {
  return sim::vote(mask, sim::Vote::ballot, value != 0);
}
template <class T>
SIM_INLINE unsigned __match_any_sync(unsigned mask, T value) {
  return sim::vote(mask, sim::Vote::match_any, sim::to_bits(value));
}
template <class T>
SIM_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all) {
  const unsigned lanes = sim::vote(mask, sim::Vote::match_all, sim::to_bits(value));
  *all = lanes != 0;
  return lanes;
}
SIM_INLINE unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return sim::reduce(mask, sim::Reduce::add, value);
}
SIM_INLINE int __reduce_add_sync(unsigned mask, int value) {
  return int(sim::reduce(mask, sim::Reduce::add, unsigned(value)));
}
SIM_INLINE unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return sim::reduce(mask, sim::Reduce::min, value);
}
SIM_INLINE int __reduce_min_sync(unsigned mask, int value) {
  return int(sim::reduce(mask, sim::Reduce::min_signed, unsigned(value)));
}
SIM_INLINE unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return sim::reduce(mask, sim::Reduce::max, value);
}
SIM_INLINE int __reduce_max_sync(unsigned mask, int value) {
  return int(sim::reduce(mask, sim::Reduce::max_signed, unsigned(value)));
}
SIM_INLINE unsigned __reduce_and_sync(unsigned mask, unsigned value) {
  return sim::reduce(mask, sim::Reduce::bit_and, value);
}
SIM_INLINE unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return sim::reduce(mask, sim::Reduce::bit_or, value);
}
SIM_INLINE unsigned __reduce_xor_sync(unsigned mask, unsigned value) {
  return sim::reduce(mask, sim::Reduce::bit_xor, value);
}

SIM_INLINE void __threadfence() { sim::fence(sim::Scope::device); }
SIM_INLINE void __threadfence_system() { sim::fence(sim::Scope::device); }
SIM_INLINE void __threadfence_block() { sim::fence(sim::Scope::block); }
SIM_INLINE void __nanosleep(unsigned) { sim::yield(); }
SIM_INLINE void __trap() { sim::trap(); }

// CUDA's atomics order nothing else: they are relaxed.
#define SIM_ATOMIC(name, result)                                                               \
  template <class T>                                                                           \
  SIM_INLINE T name(T* address, typename sim::As<T>::type value) {                             \
    const T old =                                                                              \
        sim::from_bits<T>(sim::atomic_load(address, sizeof(T), sim::Order::relaxed, true));    \
    sim::atomic_store(address, sizeof(T), sim::to_bits<T>(result), sim::Order::relaxed, true); \
    return old;                                                                                \
  }
SIM_ATOMIC(atomicAdd, T(old + value))
SIM_ATOMIC(atomicSub, T(old - value))
SIM_ATOMIC(atomicExch, value)
SIM_ATOMIC(atomicMin, value < old ? value : old)
SIM_ATOMIC(atomicMax, old < value ? value : old)
SIM_ATOMIC(atomicAnd, T(old& value))
SIM_ATOMIC(atomicOr, T(old | value))
SIM_ATOMIC(atomicXor, T(old ^ value))
SIM_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
SIM_ATOMIC(atomicDec, old == 0 || old > value ? value : T(old - 1))
#undef SIM_ATOMIC
template <class T>
SIM_INLINE T atomicCAS(T* address, typename sim::As<T>::type expected,
                       typename sim::As<T>::type value) {
  const uint64_t old = sim::atomic_load(address, sizeof(T), sim::Order::relaxed, true);
  const uint64_t next = old == sim::to_bits<T>(expected) ? sim::to_bits<T>(value) : old;
  sim::atomic_store(address, sizeof(T), next, sim::Order::relaxed, true);
  return sim::from_bits<T>(old);
}
