// The names of device.cuh that are one PTX instruction each. Only a GPU's compiler reads this.
#pragma once

#define DSPARK_PTX __device__ __forceinline__

#define DYNAMIC_SHARED(T, name)                                           \
  extern __shared__ __align__(128) unsigned char dspark_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(dspark_dynamic_shared)

// ---- conversions

DSPARK_PTX float to_float(fp8 value) { return static_cast<float>(value); }
DSPARK_PTX fp8 to_fp8(float value) { return fp8(value); }
DSPARK_PTX uint32_t pack_bf16x2(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
DSPARK_PTX float2 unpack_fp8x2(uint16_t pair) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
}

// ---- loads and flags

template <class T>
DSPARK_PTX T load_streaming(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "one load is 4, 8 or 16 bytes");
  uint4 word;
  if constexpr (sizeof(T) == 16)
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "l"(from));
  else if constexpr (sizeof(T) == 8)
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word.x), "=r"(word.y)
                 : "l"(from));
  else
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(word.x) : "l"(from));
  return *reinterpret_cast<const T*>(&word);
}
DSPARK_PTX unsigned load_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
DSPARK_PTX void store_release(unsigned* to, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
DSPARK_PTX void add_release(unsigned* to, unsigned value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
DSPARK_PTX unsigned add_acquire_release(unsigned* to, unsigned value) {
  unsigned old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(to), "r"(value)
               : "memory");
  return old;
}

// ---- cp.async

DSPARK_PTX unsigned dspark_shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
DSPARK_PTX void copy_async_16(void* shared, const void* global, unsigned valid = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dspark_shared_address(shared)),
               "l"(global), "r"(valid)
               : "memory");
}
DSPARK_PTX void copy_async_8(void* shared, const void* global, unsigned valid = 8) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dspark_shared_address(shared)),
               "l"(global), "r"(valid)
               : "memory");
}
DSPARK_PTX void copy_async_4(void* shared, const void* global, unsigned valid = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dspark_shared_address(shared)),
               "l"(global), "r"(valid)
               : "memory");
}
DSPARK_PTX void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
DSPARK_PTX void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
DSPARK_PTX void copy_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- tensor cores

#define DSPARK_LDMATRIX(shape, outputs, address, ...)                                          \
  asm volatile("ldmatrix.sync.aligned.m8n8." shape ".shared.b16 {" outputs "}, [" address "];" \
               : __VA_ARGS__                                                                   \
               : "r"(dspark_shared_address(row))                                               \
               : "memory")
#define DSPARK_LDMATRICES(suffix, trans)                                                    \
  DSPARK_PTX void ldmatrix_x1##suffix(uint32_t (&r)[1], const void* row) {                  \
    DSPARK_LDMATRIX("x1" trans, "%0", "%1", "=r"(r[0]));                                    \
  }                                                                                         \
  DSPARK_PTX void ldmatrix_x2##suffix(uint32_t (&r)[2], const void* row) {                  \
    DSPARK_LDMATRIX("x2" trans, "%0, %1", "%2", "=r"(r[0]), "=r"(r[1]));                    \
  }                                                                                         \
  DSPARK_PTX void ldmatrix_x4##suffix(uint32_t (&r)[4], const void* row) {                  \
    DSPARK_LDMATRIX("x4" trans, "%0, %1, %2, %3", "%4", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), \
                    "=r"(r[3]));                                                            \
  }
DSPARK_LDMATRICES(, "")
DSPARK_LDMATRICES(_trans, ".trans")

DSPARK_PTX void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- named barriers, mbarriers and bulk copies

DSPARK_PTX void barrier_sync(unsigned id, unsigned threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DSPARK_PTX void barrier_arrive(unsigned id, unsigned threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#if DSPARK_HAS_BULK
DSPARK_PTX void mbarrier_init(uint64_t* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(dspark_shared_address(barrier)),
               "r"(count)
               : "memory");
}
// Behind it the copy engine, too, sees what mbarrier_init wrote.
DSPARK_PTX void fence_mbarrier_init() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DSPARK_PTX void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(dspark_shared_address(barrier))
               : "memory");
}
DSPARK_PTX void mbarrier_arrive_expect(uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   dspark_shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
DSPARK_PTX void mbarrier_wait(uint64_t* barrier, unsigned parity) {
  unsigned done;
  do
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(dspark_shared_address(barrier)), "r"(parity)
        : "memory");
  while (!done);
}
DSPARK_PTX void bulk_copy_to_shared(void* shared, const void* global, unsigned bytes,
                                    uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(dspark_shared_address(shared)),
      "l"(global), "r"(bytes), "r"(dspark_shared_address(barrier))
      : "memory");
}
#endif
