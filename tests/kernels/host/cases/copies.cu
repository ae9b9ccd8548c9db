// cp.async and bulk copies, awaited and not.
#include "device.cuh"

// Two stages; `wait` is how many groups may be under way when a stage is used.
template <int kWait, bool kBarrier>
__device__ __forceinline__ void pipeline(const float* in, float* out, int tiles) {
  __shared__ __align__(16) float stages[2][128];
  const int i = threadIdx.x;
  copy_async_16(&stages[0][4 * i], in + 4 * i);
  copy_async_commit();
  for (int tile = 0; tile < tiles; tile++) {
    if (tile + 1 < tiles)
      copy_async_16(&stages[(tile + 1) % 2][4 * i], in + (tile + 1) * 128 + 4 * i);
    copy_async_commit();
    copy_async_wait<kWait>();
    if (kBarrier) __syncthreads();
    for (int j = i; j < 128; j += 32) out[tile * 128 + j] = stages[tile % 2][127 - j];
    __syncthreads();
  }
}
#define PIPELINE(name, wait, barrier)                                       \
  extern "C" __global__ void name(const float* in, float* out, int tiles) { \
    pipeline<wait, barrier>(in, out, tiles);                                \
  }
PIPELINE(pipeline_good, 1, true)
PIPELINE(pipeline_waits_too_little, 2, true)
PIPELINE(pipeline_no_barrier, 1, false)

extern "C" __global__ void sizes(const float* in, float* out, int valid) {
  __shared__ __align__(16) float box[3][4];
  copy_async_16(box[0], in, valid);
  copy_async_8(box[1], in);
  copy_async_4(box[2], in + 1);
  copy_async_wait_all();
  for (int j = 0; j < 4; j++) out[j] = box[0][j];
  out[4] = box[1][1];
  out[5] = box[2][0];
}

extern "C" __global__ void never_waits(const float* in, float* out) {
  __shared__ __align__(16) float box[4];
  copy_async_16(box, in);
  out[0] = 1.0f;
}

extern "C" __global__ void misplaced(const float* in, float* out, int from, int to) {
  DYNAMIC_SHARED(float, box);
  copy_async_16(box + to, in + from);
  copy_async_wait_all();
  out[0] = box[to];
}

// A producer streams rows through a ring; four warps read them. The mistakes are one flag each.
enum Mistake {
  kNone,
  kNoFullWait,
  kNoEmptyWait,
  kWrongParity,
  kNoFence,
  kSmallExpect,
  kLargeExpect,
  kNoArrive,
  kExtraArrive,
  kNoInit,
  kNoBarrier,
  kNoSyncwarp
};
constexpr int kStages = 2, kRow = 64;
template <int kMistake>
__device__ __forceinline__ void ring(const float* in, float* out, int rows) {
  DYNAMIC_SHARED(float, stages);
  __shared__ uint64_t full[kStages], empty[kStages];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0 && kMistake != kNoInit) {
    for (int s = 0; s < kStages; s++) {
      mbarrier_init(full + s, 1);
      mbarrier_init(empty + s, 2);
    }
    if (kMistake != kNoFence) fence_mbarrier_init();
  }
  if (kMistake != kNoBarrier) __syncthreads();
  if (warp == 2) {
    if (lane != 0) return;
    for (int row = 0; row < rows; row++) {
      const int s = row % kStages, turn = row / kStages % 2;
      if (row >= kStages && kMistake != kNoEmptyWait) mbarrier_wait(empty + s, turn ^ 1);
      const unsigned bytes = kRow * sizeof(float);
      mbarrier_arrive_expect(full + s, kMistake == kSmallExpect   ? bytes / 2
                                       : kMistake == kLargeExpect ? bytes * 2
                                                                  : bytes);
      if (kMistake == kExtraArrive) mbarrier_arrive(full + s);
      bulk_copy_to_shared(stages + s * kRow, in + row * kRow, bytes, full + s);
    }
    return;
  }
  for (int row = 0; row < rows; row++) {
    const int s = row % kStages, turn = row / kStages % 2;
    if (kMistake != kNoFullWait)
      mbarrier_wait(full + s, kMistake == kWrongParity ? turn ^ 1 : turn);
    out[row * kRow + warp * 32 + lane] = 2.0f * stages[s * kRow + 63 - warp * 32 - lane];
    if (kMistake != kNoSyncwarp) __syncwarp();
    if (lane == 0 && kMistake != kNoArrive) mbarrier_arrive(empty + s);
  }
}
#define RING(name, mistake)                                                \
  extern "C" __global__ void name(const float* in, float* out, int rows) { \
    ring<mistake>(in, out, rows);                                          \
  }
RING(ring_good, kNone)
RING(ring_no_full_wait, kNoFullWait)
RING(ring_no_empty_wait, kNoEmptyWait)
RING(ring_wrong_parity, kWrongParity)
RING(ring_no_fence, kNoFence)
RING(ring_small_expect, kSmallExpect)
RING(ring_large_expect, kLargeExpect)
RING(ring_no_arrive, kNoArrive)
RING(ring_extra_arrive, kExtraArrive)
RING(ring_no_init, kNoInit)
RING(ring_no_barrier, kNoBarrier)
RING(ring_no_syncwarp, kNoSyncwarp)

extern "C" __global__ void bulk_never_waits(const float* in, float* out, int bytes) {
  DYNAMIC_SHARED(float, box);
  __shared__ uint64_t done;
  mbarrier_init(&done, 1);
  fence_mbarrier_init();
  mbarrier_arrive_expect(&done, bytes);
  bulk_copy_to_shared(box, in, bytes, &done);
  out[0] = 1.0f;
}

// The second copy goes where the first one went; sleeping lets that land, and orders nothing.
extern "C" __global__ void bulk_twice(const float* in, float* out, int waits) {
  DYNAMIC_SHARED(float, box);
  __shared__ uint64_t done;
  mbarrier_init(&done, 1);
  fence_mbarrier_init();
  for (unsigned round = 0; round < 2; round++) {
    mbarrier_arrive_expect(&done, 16);
    bulk_copy_to_shared(box, in + 4 * round, 16, &done);
    if (waits || round == 1)
      mbarrier_wait(&done, round);
    else
      for (int i = 0; i < 3; i++) __nanosleep(100);
  }
  out[0] = box[0];
}

// What lay at the destination before is gone as soon as the copy is asked for.
extern "C" __global__ void reads_too_early(const float* in, float* out) {
  __shared__ __align__(16) float box[4];
  for (int j = 0; j < 4; j++) box[j] = 1.0f;
  copy_async_16(box, in);
  for (int j = 0; j < 4; j++) out[j] = box[j];
  copy_async_wait_all();
}

// The copy lands behind the barrier, so the barrier does not show it to the other thread.
extern "C" __global__ void waits_behind_the_barrier(const float* in, float* out) {
  __shared__ __align__(16) float box[4];
  if (threadIdx.x == 1) copy_async_16(box, in);
  __syncthreads();
  if (threadIdx.x == 1) {
    copy_async_wait_all();
  } else {
    for (int i = 0; i < 3; i++) __nanosleep(100);
    out[0] = box[0];
  }
}
