// The same hand-over with and without what orders it.
#include "device.cuh"

enum class With { nothing, barrier, warp, shuffle, volatiles };

template <With kWith>
__device__ __forceinline__ void hand_over(float* out) {
  __shared__ float box[64];
  const int i = threadIdx.x;
  box[i] = static_cast<float>(i);
  if (kWith == With::barrier) __syncthreads();
  if (kWith == With::warp) __syncwarp();
  if (kWith == With::shuffle) out[64 + i] = __shfl_sync(kFullWarp, 1.0f, 0);
  out[i] = kWith == With::volatiles ? *static_cast<volatile float*>(&box[i ^ 1]) : box[i ^ 1];
}
#define HAND_OVER(name) \
  extern "C" __global__ void by_##name(float* out) { hand_over<With::name>(out); }
HAND_OVER(nothing)
HAND_OVER(barrier)
HAND_OVER(warp)
HAND_OVER(shuffle)
HAND_OVER(volatiles)

// A second round may overwrite what a slow reader of the first still needs.
extern "C" __global__ void rounds(float* out, int barriers) {
  __shared__ float box;
  for (int round = 0; round < 3; round++) {
    if (threadIdx.x == 0) box = static_cast<float>(round);
    __syncthreads();
    out[round * blockDim.x + threadIdx.x] = box;
    if (barriers == 2) __syncthreads();
  }
}

// Two threads write the same value to the same place.
extern "C" __global__ void both_write(float* out) {
  if (threadIdx.x < 2) out[0] = 1.0f;
}

extern "C" __global__ void neighbours(uint8_t* out) { out[threadIdx.x] = uint8_t(threadIdx.x); }

// Another block's output is read; no barrier reaches that far.
extern "C" __global__ void between_blocks(float* out) {
  out[blockIdx.x] = 1.0f;
  if (blockIdx.x == 1) out[2] = out[0];
}

enum class Signal { good, no_fence, block_fence, no_second_fence, plain, early_fence };

// The last block to arrive adds up what all have written.
template <Signal kSignal>
__device__ __forceinline__ void last_block(float* parts, unsigned* arrived, float* sum) {
  __shared__ bool last;
  parts[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(threadIdx.x + blockIdx.x);
  if (kSignal == Signal::early_fence) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kSignal == Signal::block_fence)
      __threadfence_block();
    else if (kSignal != Signal::no_fence && kSignal != Signal::early_fence)
      __threadfence();
    const unsigned before =
        kSignal == Signal::plain ? (*arrived)++ : atomicInc(arrived, gridDim.x - 1);
    last = before == gridDim.x - 1;
    if (kSignal != Signal::no_second_fence) __threadfence();
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  float total = 0;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; i++) total += parts[i];
  *sum = total;
}
#define LAST_BLOCK(name)                                                                \
  extern "C" __global__ void last_##name(float* parts, unsigned* arrived, float* sum) { \
    last_block<Signal::name>(parts, arrived, sum);                                      \
  }
LAST_BLOCK(good)
LAST_BLOCK(no_fence)
LAST_BLOCK(block_fence)
LAST_BLOCK(no_second_fence)
LAST_BLOCK(plain)
LAST_BLOCK(early_fence)

// All blocks wait for each other, twice; `kind` breaks one side of the hand-over.
enum class Grid { good, relaxed_arrival, relaxed_wait };
template <Grid kGrid>
__device__ __forceinline__ void meet(unsigned* arrived, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kGrid == Grid::relaxed_arrival)
      atomicAdd(arrived, 1u);
    else
      add_release(arrived, 1u);
    if (kGrid == Grid::relaxed_wait)
      while (*static_cast<volatile unsigned*>(arrived) < target) __nanosleep(20);
    else
      while (load_acquire(arrived) < target) __nanosleep(20);
  }
  __syncthreads();
}
template <Grid kGrid>
__device__ __forceinline__ void exchange(float* values, float* out, unsigned* arrived) {
  const int blocks = gridDim.x, other = (blockIdx.x + 1) % blocks;
  if (threadIdx.x == 0) values[blockIdx.x] = static_cast<float>(blockIdx.x);
  meet<kGrid>(arrived, blocks);
  const float seen = values[other];
  meet<kGrid>(arrived, 2 * blocks);
  if (threadIdx.x == 0) out[blockIdx.x] = seen;
}
#define EXCHANGE(name)                                                                       \
  extern "C" __global__ void exchange_##name(float* values, float* out, unsigned* arrived) { \
    exchange<Grid::name>(values, out, arrived);                                              \
  }
EXCHANGE(good)
EXCHANGE(relaxed_arrival)
EXCHANGE(relaxed_wait)

// The other warp may count before thread 0 has begun at zero.
extern "C" __global__ void plain_start(unsigned* counter) {
  if (threadIdx.x == 0) *counter = 0;
  __syncwarp();
  atomicAdd(counter, 1u);
}

// A fence that reaches its own block alone, and readers inside and outside of that block.
enum { kInside, kFences, kAcquires, kBehindAnother };
extern "C" __global__ void block_scope(float* data, unsigned* flag, float* out, int reader) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    data[0] = 1.0f;
    __threadfence_block();
    atomicAdd(flag, 1u);
    return;
  }
  if (blockIdx.x != (reader == kInside ? 0 : 1) || threadIdx.x > 1) return;
  if (reader == kBehindAnother && threadIdx.x == 0) {
    while (load_acquire(flag) < 1u) __nanosleep(20);
    atomicAdd(flag, 1u);
  } else if (threadIdx.x == (reader == kInside || reader == kBehindAnother)) {
    if (reader == kInside || reader == kFences) {
      while (*static_cast<volatile unsigned*>(flag) < 1) __nanosleep(20);
      if (reader == kInside)
        __threadfence_block();
      else
        __threadfence();
    } else {
      while (load_acquire(flag) < (reader == kAcquires ? 1u : 2u)) __nanosleep(20);
    }
    out[0] = data[0];
  }
}

// The second thread adds to the flag, which hands on what the first released, or sets it anew.
extern "C" __global__ void release_sequence(float* data, unsigned* flag, float* out, int sets) {
  if (threadIdx.x == 0) {
    data[0] = 1.0f;
    add_release(flag, 1u);
  } else if (threadIdx.x == 1) {
    while (*static_cast<volatile unsigned*>(flag) < 1u) __nanosleep(20);
    if (sets)
      store_release(flag, 5u);
    else
      add_release(flag, 4u);
  } else {
    while (load_acquire(flag) < 5u) __nanosleep(20);
    out[0] = data[0];
  }
}
