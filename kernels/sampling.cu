// From logits to the distribution that a request's parameters ask for, as runtime/sampling.py defines
// it, and to a token drawn from it.
//
// One block a row: what a row goes through is a chain of sums and thresholds over the whole
// vocabulary, and a row lies in the L2 cache between them. Rows that only want the likeliest token
// do not come here.
#include "choices.cuh"

enum Status : int { kFine = 0, kNoNumber = 1, kForbidden = 2 };

// Sets to 0 what is not kept and lets the rest sum to 1. Kept are chances above that with the bits
// `least`, and those equal to it up to the place `last`.
__device__ __forceinline__ void keep(float* row, int vocab, unsigned least, int last) {
  const auto kept = [&](int i, float chance) {
    const unsigned bits = __float_as_uint(chance);
    return bits > least || (bits == least && i <= last);
  };
  Units sum = 0;
  for (int i = threadIdx.x; i < vocab; i += blockDim.x)
    if (kept(i, row[i])) sum += units<kChanceBits>(row[i]);
  const float scale = static_cast<float>(static_cast<double>(1ull << kChanceBits) / static_cast<double>(block_total(sum)));
  for (int i = threadIdx.x; i < vocab; i += blockDim.x) row[i] = kept(i, row[i]) ? row[i] * scale : 0.f;
}

struct Border {
  unsigned bits;  // of a chance
  Units rest;     // how far the limit reaches into the chances equal to it
};

// The largest chance such that the units of all chances from it on up reach `limit`; the smallest
// above 0 where they never do. Found eight bits at a time, from the largest down.
template <class UnitsOf>
__device__ __forceinline__ Border border(const float* row, int vocab, Units limit, const UnitsOf& units_of) {
  __shared__ Units of_digit[256];
  unsigned prefix = 0;
  Units rest = limit - 1;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();  // the digits before these have been read
    for (int digit = threadIdx.x; digit < 256; digit += blockDim.x) of_digit[digit] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
      const unsigned bits = __float_as_uint(row[i]);
      // Chances of 0 change nothing, and may be most.
      if (bits && (shift == 24 || (bits ^ prefix) >> (shift + 8) == 0))
        atomicAdd(&of_digit[bits >> shift & 255], units_of(row[i]));
    }
    __syncthreads();
    const Found found = find(
        256, [&](int i) { return of_digit[255 - i]; }, [&](Units total) { return rest < total ? rest : total - 1; });
    prefix |= static_cast<unsigned>(255 - found.place) << shift;
    rest = found.rest;
  }
  return {prefix, rest};
}

// Chances [requests, places, vocab] of the rows `first` and on of each request, from logits
// [requests, rows, vocab]. Grid (rows, requests). A row beyond count_of[request] is left alone.
//
// `history` has, for each token, twice how often the request put it out, plus 1 where its prompt has
// it. Row r counts tokens 1 to r of `tokens` besides, which stand before it as drafts. `top_p` is a
// limit in units of 2^-62, rounded up; 2^62 and more is off. A temperature of 0 takes the likeliest.
// Tokens of `bias_tokens` outside the vocabulary are unused places, and no token comes twice.
//
// `status` says 1 of a row that held NaN, infinity or nothing above minus infinity, and 2 of one
// whose every token `bias` forbids; the chances of such a row are all 0.
extern "C" __global__ void __launch_bounds__(1024, 1) distribution(
    const float* __restrict__ logits,       // [requests, rows, vocab]
    const int* __restrict__ tokens,         // [requests, width]
    const int* __restrict__ count_of,       // [requests]
    const int* __restrict__ history,        // [requests, vocab]
    const float* __restrict__ temperature,  // [requests]
    const int* __restrict__ top_k,          // [requests]
    const uint64_t* __restrict__ top_p,     // [requests]
    const float* __restrict__ min_p,        // [requests]
    const float* __restrict__ repetition,   // [requests]
    const float* __restrict__ presence,     // [requests]
    const float* __restrict__ frequency,    // [requests]
    const int* __restrict__ bias_tokens,    // [requests, biases]
    const float* __restrict__ biases_of,    // [requests, biases]
    float* __restrict__ chances,            // [requests, places, vocab]
    int* __restrict__ status,               // [requests, places]
    int requests, int rows, int width, int places, int first, int biases, int vocab) {
  const int request = blockIdx.y, place = first + static_cast<int>(blockIdx.x);
  if (place >= count_of[request]) return;
  const size_t at = static_cast<size_t>(request) * places + place;
  const float* from = logits + (static_cast<size_t>(request) * rows + blockIdx.x) * vocab;
  const int* counts = history + static_cast<size_t>(request) * vocab;
  const int* mine = tokens + request * width;
  float* row = chances + at * vocab;
  const float repeated = repetition[request], present = presence[request], frequent = frequency[request];
  const bool penalises = repeated != 1.f || present != 0.f || frequent != 0.f;

  Best largest = {-kInfinity, kNowhere};
  for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
    float logit = from[i];
    largest = better(largest, {logit, i});
    if (penalises) {
      int times = counts[i] >> 1;
      for (int j = 1; j <= place; j++) times += mine[j] == i;
      if (times || counts[i] & 1) logit = logit > 0.f ? logit / repeated : logit * repeated;
      if (times) logit = __fadd_rn(logit, -__fadd_rn(present, __fmul_rn(frequent, static_cast<float>(times))));
    }
    row[i] = logit;
  }
  Status found = fabsf(best_of_block(largest).value) < kInfinity ? kFine : kNoNumber;
  for (int i = threadIdx.x; i < biases; i += blockDim.x) {
    const int token = bias_tokens[request * biases + i];
    if (token >= 0 && token < vocab) row[token] += biases_of[request * biases + i];
  }
  __syncthreads();
  largest = {-kInfinity, kNowhere};
  for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
    largest = better(largest, {row[i], i});
  }
  largest = best_of_block(largest);
  if (found == kFine && !(fabsf(largest.value) < kInfinity)) found = largest.value < 0.f ? kForbidden : kNoNumber;
  if (threadIdx.x == 0) status[at] = found;
  const float divisor = temperature[request];
  if (found != kFine || divisor == 0.f) {
    const int best = found == kFine ? largest.place : -1;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) row[i] = i == best ? 1.f : 0.f;
    return;
  }

  const float top = largest.value / divisor;
  Units sum = 0;
  for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
    const float weight = expf(row[i] / divisor - top);
    row[i] = weight;
    sum += units<kWeightBits>(weight);
  }
  const float scale = static_cast<float>(static_cast<double>(1ull << kWeightBits) / static_cast<double>(block_total(sum)));
  for (int i = threadIdx.x; i < vocab; i += blockDim.x) row[i] *= scale;

  const int most = top_k[request];
  if (most > 0 && most < vocab) {
    const Border least = border(row, vocab, static_cast<Units>(most), [](float) { return static_cast<Units>(1); });
    keep(row, vocab, least.bits, vocab);
  }
  const Units mass = top_p[request];
  if (mass < 1ull << kChanceBits) {
    const Border least = border(row, vocab, mass, [](float chance) { return units<kChanceBits>(chance); });
    // Of equals those that come first, as many as it takes.
    const Units each = units<kChanceBits>(__uint_as_float(least.bits)), full = least.rest / each;
    __syncthreads();
    const Found last = find(
        vocab, [&](int i) { return static_cast<Units>(__float_as_uint(row[i]) == least.bits); },
        [&](Units) { return full; });
    keep(row, vocab, least.bits, last.place);
  }
  if (min_p[request] > 0.f) {
    Best likeliest = {0.f, kNowhere};
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) likeliest = better(likeliest, {row[i], i});
    likeliest = best_of_block(likeliest);
    keep(row, vocab, __float_as_uint(min_p[request] * likeliest.value), vocab);
  }
}

// Draws draft `slot`, the token at slot + 1 of `tokens`, from its chances, for the requests that
// `draws` says; -1 where there is no chance. Grid (requests).
extern "C" __global__ void __launch_bounds__(1024, 1) draw_draft(
    const float* __restrict__ chances,   // [requests, places, vocab]
    const int* __restrict__ draws,       // [requests]
    const int* __restrict__ lengths,     // [requests]
    const uint64_t* __restrict__ seeds,  // [requests]
    int* __restrict__ tokens,            // [requests, places + 1]
    int requests, int places, int slot, int vocab) {
  const int request = blockIdx.x;
  if (!draws[request]) return;
  const float* row = chances + (static_cast<size_t>(request) * places + slot) * vocab;
  // A cache as long as the anchor's position: the first draft comes behind that.
  const Units bits = random_bits(seeds[request], lengths[request] + 1 + slot, kForDraft);
  const int token = pick(vocab, [&](int i) { return row[i]; }, bits);
  if (threadIdx.x == 0) tokens[request * (places + 1) + slot + 1] = token;
}

// Counts what a round put out into `history`, as `distribution` reads it. Any grid.
extern "C" __global__ void __launch_bounds__(256) note_tokens(
    const int* __restrict__ out,   // [requests, width]
    const int* __restrict__ kept,  // [requests]
    int* __restrict__ history,     // [requests, vocab]
    int requests, int width, int vocab) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < requests * width; i += gridDim.x * blockDim.x) {
    const int request = i / width, token = out[i];
    if (i % width < kept[request] && token >= 0)
      atomicAdd(&history[static_cast<size_t>(request) * vocab + token], 2);
  }
}
