// Every atomic, by many threads on one place.
#include "device.cuh"

extern "C" __global__ void all_kinds(int* ints, unsigned* words, float* floats,
                                     unsigned long long* longs) {
  __shared__ int local;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) local = 0;
  __syncthreads();
  atomicAdd(&local, i);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&ints[0], local);
  atomicSub(&ints[1], i);
  atomicMin(&ints[2], -i);
  atomicMax(&ints[3], i);
  atomicAnd(&words[0], ~(1u << i % 32));
  atomicOr(&words[1], 1u << i % 32);
  atomicXor(&words[2], 1u << i % 32);
  atomicInc(&words[3], 6u);
  atomicDec(&words[4], 6u);
  atomicAdd(&floats[0], 0.5f);
  atomicAdd(&longs[0], 1ull << 33);
  if (atomicCAS(&words[5], 0u, static_cast<unsigned>(i + 1)) == 0u) atomicExch(&words[6], 77u);
}

extern "C" __global__ void misaligned(char* bytes) {
  atomicAdd(reinterpret_cast<int*>(bytes + 2), 1);
}

// Who comes first is up to the schedule.
extern "C" __global__ void order(int* next, int* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
}

extern "C" __global__ void spins_alone(unsigned* flag) {
  while (load_acquire(flag) == 0) __nanosleep(100);
}

// Whether another thread came between two steps of one.
extern "C" __global__ void steps(int* next, int* gaps) {
  const int first = atomicAdd(next, 1);
  gaps[threadIdx.x] = atomicAdd(next, 1) - first;
}
