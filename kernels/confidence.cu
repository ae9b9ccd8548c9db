// How many drafts of each request the target verifies: those that are there, and of them those worth
// it by what the draft's confidence head thinks of them (runtime/confidence.py is the definition).
#include "device.cuh"

// The logit of draft j holding if all before it do, for every slot at once: it reads the token before
// the slot, and drafts do not wait for it. `hidden` are rows `at` and on of the request's block; a
// rank of 0 is a head that reads nothing else, and a token that the table does not have gives NaN. A
// warp a slot; any grid; rank and width multiples of 8.
extern "C" __global__ void __launch_bounds__(128) confidence(
    const bf16* __restrict__ weight,  // [width + rank]
    const bf16* __restrict__ bias,    // [1]
    const bf16* __restrict__ table,   // [entries, rank]
    const bf16* __restrict__ hidden,  // [requests, rows, width]
    const int* __restrict__ tokens,   // [requests, slots + 1]
    float* __restrict__ logits,       // [requests, slots]
    int requests, int entries, int rank, int rows, int at, int width, int slots) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const uint4* weights = reinterpret_cast<const uint4*>(weight);
  for (int i = blockIdx.x * warps + threadIdx.x / 32; i < requests * slots; i += gridDim.x * warps) {
    const int request = i / slots, slot = i % slots, token = tokens[request * (slots + 1) + slot];
    const bool known = rank == 0 || (token >= 0 && token < entries);
    const uint4* x = reinterpret_cast<const uint4*>(hidden + (static_cast<size_t>(request) * rows + at + slot) * width);
    const uint4* embedded = reinterpret_cast<const uint4*>(table + static_cast<size_t>(known ? token : 0) * rank);
    float sum = 0.f;
    for (int vector = lane; vector < (width + rank) / 8; vector += 32) {
      float w[8], v[8];
      unpack_bf16x8(weights[vector], w);
      unpack_bf16x8(vector < width / 8 ? x[vector] : embedded[vector - width / 8], v);
#pragma unroll
      for (int j = 0; j < 8; j++) sum += w[j] * v[j];
    }
    sum = warp_sum(sum);
    if (lane == 0) logits[i] = known ? sum + to_float(bias[0]) : __int_as_float(0x7fffffff);
  }
}

// Rows of each request: its newest token and its drafts up to the first that is none, as many as are
// wanted at the most. A request that wants -1 only fills up the batch and has none. Any grid.
extern "C" __global__ void __launch_bounds__(256) count_drafts(
    const int* __restrict__ tokens,  // [requests, slots + 1]
    const int* __restrict__ wanted,  // [requests]
    int* __restrict__ rows_of,       // [requests]
    int requests, int slots) {
  for (int request = blockIdx.x * blockDim.x + threadIdx.x; request < requests; request += gridDim.x * blockDim.x) {
    const int most = min(wanted[request], slots);
    int count = most < 0 ? 0 : 1;
    while (count <= most && tokens[request * (slots + 1) + count] >= 0) count++;
    rows_of[request] = count;
  }
}

// Lowers `rows_of` to what pays: drafts by falling survival, of equals the earlier, then the lower
// request, until one would bring fewer expected tokens a second. What comes behind it is not looked
// at, or a draft could decide on its own verification. `rates` are passes a second by tokens in the
// pass; what it does not reach is not verified. `others` are in the pass whatever is decided here.
// Requests that want no drafts stay as they are, and are among the others.
//
// In float64 as in the runtime: a chance differs by what exp does in its last bit. One block, 12 *
// requests * slots bytes of shared memory.
extern "C" __global__ void __launch_bounds__(256) cut_drafts(
    const float* __restrict__ logits,         // [requests, slots]
    const double* __restrict__ temperatures,  // [slots]
    const double* __restrict__ rates,         // [most + 1]
    const int* __restrict__ others,           // [1]
    const int* __restrict__ wanted,           // [requests]
    int* __restrict__ rows_of,                // [requests]
    int requests, int slots, int most) {
  DYNAMIC_SHARED(double, survival);
  const int count = requests * slots;
  int* const order = reinterpret_cast<int*>(survival + count);
  for (int request = threadIdx.x; request < requests; request += blockDim.x) {
    const bool drafts = wanted[request] > 0;
    const int last = drafts ? rows_of[request] - 1 : 0;
    double all = 1.;
    for (int slot = 0; slot < slots; slot++) {
      const int i = request * slots + slot;
      const double logit = logits[i] / temperatures[slot];
      // Not above -700, and so 0, is NaN too.
      if (slot < last) all *= logit > -700. ? 1. / (1. + exp(-logit)) : 0.;
      survival[i] = slot < last ? all : -1.;
    }
    if (drafts) rows_of[request] = 1;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const double mine = survival[i];
    const int place = i % slots * requests + i / slots;
    int before = 0;
    for (int j = 0; j < count; j++)
      before += survival[j] > mine || (survival[j] == mine && j % slots * requests + j / slots < place);
    order[before] = i;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  int drafting = 0;
  for (int request = 0; request < requests; request++) drafting += wanted[request] > 0;
  int tokens = others[0] + drafting;
  double expected = drafting, best = tokens <= most ? expected * rates[tokens] : 0.;
  for (int i = 0; i < count; i++) {
    const int chosen = order[i];
    // What is not there stands behind all that has a chance.
    if (!(survival[chosen] > 0.) || ++tokens > most) break;
    expected += survival[chosen];
    const double worth = expected * rates[tokens];
    if (!(worth > best)) break;
    best = worth;
    rows_of[chosen / slots] = chosen % slots + 2;
  }
}
