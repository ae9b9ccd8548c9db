// The names of device.cuh that are one PTX instruction each, as the simulator does them.
#pragma once

#define DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::sim::dynamic_shared())

// ---- conversions

SIM_INLINE float to_float(fp8 value) {
  const unsigned magnitude = value.__x & 0x7f, sign = unsigned(value.__x & 0x80) << 24;
  return __uint_as_float(
      sign | (magnitude == 0x7f ? 0x7fffffff : __float_as_uint(sim::widen(magnitude, 3, -6))));
}
SIM_INLINE fp8 to_fp8(float value) { return {sim::e4m3_bits(__float_as_uint(value))}; }
SIM_INLINE uint32_t pack_bf16x2(float low, float high) {
  return sim::bf16_bits(__float_as_uint(low)) | uint32_t(sim::bf16_bits(__float_as_uint(high)))
                                                    << 16;
}
SIM_INLINE float2 unpack_fp8x2(uint16_t pair) {
  return make_float2(to_float(fp8{uint8_t(pair)}), to_float(fp8{uint8_t(pair >> 8)}));
}

// ---- loads and flags

template <class T>
SIM_INLINE T load_streaming(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "one load is 4, 8 or 16 bytes");
  return *from;
}
SIM_INLINE unsigned load_acquire(const unsigned* from) {
  return unsigned(sim::atomic_load(from, 4, sim::Order::acquire, false));
}
SIM_INLINE void store_release(unsigned* to, unsigned value) {
  sim::atomic_store(to, 4, value, sim::Order::release, false);
}
SIM_INLINE void add_release(unsigned* to, unsigned value) {
  const auto old = unsigned(sim::atomic_load(to, 4, sim::Order::relaxed, true));
  sim::atomic_store(to, 4, old + value, sim::Order::release, true);
}
SIM_INLINE unsigned add_acquire_release(unsigned* to, unsigned value) {
  const auto old = unsigned(sim::atomic_load(to, 4, sim::Order::acquire, true));
  sim::atomic_store(to, 4, old + value, sim::Order::release, true);
  return old;
}

// ---- cp.async

SIM_INLINE void copy_async_16(void* shared, const void* global, unsigned valid = 16) {
  sim::copy_async(shared, global, 16, valid);
}
SIM_INLINE void copy_async_8(void* shared, const void* global, unsigned valid = 8) {
  sim::copy_async(shared, global, 8, valid);
}
SIM_INLINE void copy_async_4(void* shared, const void* global, unsigned valid = 4) {
  sim::copy_async(shared, global, 4, valid);
}
SIM_INLINE void copy_async_commit() { sim::copy_commit(); }
template <int kLeft>
SIM_INLINE void copy_async_wait() {
  sim::copy_wait(kLeft, false);
}
SIM_INLINE void copy_async_wait_all() { sim::copy_wait(0, true); }

// ---- tensor cores

#define SIM_LDMATRIX(count)                                                          \
  SIM_INLINE void ldmatrix_x##count(uint32_t (&r)[count], const void* row) {         \
    sim::ldmatrix(r, row, count, false);                                             \
  }                                                                                  \
  SIM_INLINE void ldmatrix_x##count##_trans(uint32_t (&r)[count], const void* row) { \
    sim::ldmatrix(r, row, count, true);                                              \
  }
SIM_LDMATRIX(1)
SIM_LDMATRIX(2)
SIM_LDMATRIX(4)
#undef SIM_LDMATRIX

SIM_INLINE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  sim::mma_m16n8k16(d, a, b);
}

// ---- named barriers, mbarriers and bulk copies

SIM_INLINE void barrier_sync(unsigned id, unsigned threads) {
  sim::named_barrier(id, threads, true);
}
SIM_INLINE void barrier_arrive(unsigned id, unsigned threads) {
  sim::named_barrier(id, threads, false);
}
SIM_INLINE void mbarrier_init(uint64_t* barrier, unsigned count) {
  sim::mbarrier_init(barrier, count);
}
SIM_INLINE void fence_mbarrier_init() { sim::mbarrier_fence(); }
SIM_INLINE void mbarrier_arrive(uint64_t* barrier) { sim::mbarrier_arrive(barrier, 0); }
SIM_INLINE void mbarrier_arrive_expect(uint64_t* barrier, unsigned bytes) {
  sim::mbarrier_arrive(barrier, bytes);
}
SIM_INLINE void mbarrier_wait(uint64_t* barrier, unsigned parity) {
  sim::mbarrier_wait(barrier, parity);
}
SIM_INLINE void bulk_copy_to_shared(void* shared, const void* global, unsigned bytes,
                                    uint64_t* barrier) {
  sim::bulk_copy(shared, global, bytes, barrier);
}
