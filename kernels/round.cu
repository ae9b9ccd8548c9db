// The bookkeeping of a round on the device: where rows go, what the target accepts, and the rollback.
//
// A request of a pass has `width` rows, of which the first rows_of[request] are in use; a request that
// only fills up the batch has none. Its committed length is that of its cache, and the position of its
// newest token.
#include "choices.cuh"

// Positions and slots of every row, by the request's length and page table. Rows that are not in use,
// or lie beyond the table, get position 0 and a slot of their own from `scratch` on, which nothing
// reads. Any grid.
extern "C" __global__ void __launch_bounds__(256) place_rows(
    const int* __restrict__ lengths,      // [requests]
    const int* __restrict__ rows_of,      // [requests]
    const int* __restrict__ page_tables,  // [requests, table_pages]
    int* __restrict__ at,                 // [requests, width]
    int* __restrict__ slots,              // [requests, width]
    int requests, int width, int table_pages, int page_size, int scratch) {
  const int rows = requests * width;
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
    const int request = row / width, index = row % width, position = lengths[request] + index;
    const bool used = index < rows_of[request] && position / page_size < table_pages;
    at[row] = used ? position : 0;
    slots[row] = used ? page_tables[request * table_pages + position / page_size] * page_size + position % page_size
                      : scratch + row;
  }
}

// Temperature 0: the drafts that are the target's own choice, up to the first that is not, and that
// choice. `tokens` are the newest token and its drafts, `best` what the target would put behind each
// of them; a draft or a choice below 0 stands for logits that were no numbers, and agrees with
// nothing. `out` gets kept[request] tokens a request, and -1 behind them. A warp a request.
extern "C" __global__ void __launch_bounds__(256) accept_greedy(
    const int* __restrict__ tokens,   // [requests, width]
    const int* __restrict__ best,     // [requests, width]
    const int* __restrict__ rows_of,  // [requests]
    int* __restrict__ out,            // [requests, width]
    int* __restrict__ kept,           // [requests]
    int requests, int width) {
  const int request = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (request >= requests) return;
  const int* mine = tokens + request * width;
  const int* choice = best + request * width;
  const int drafts = rows_of[request] - 1;
  int accepted = 0;
  while (accepted < drafts) {
    const int i = accepted + lane;
    const bool agrees = i < drafts && choice[i] >= 0 && mine[i + 1] == choice[i];
    const unsigned votes = __ballot_sync(kFullWarp, agrees);
    if (votes != kFullWarp) {
      accepted += __ffs(~votes) - 1;
      break;
    }
    accepted += 32;
  }
  const int count = drafts < 0 ? 0 : accepted + 1;
  for (int i = lane; i < width; i += 32) out[request * width + i] = i < count ? choice[i] : -1;
  if (lane == 0) kept[request] = count;
}

// Above temperature 0, losslessly: draft d behind i others is kept with chance p(d) / q(d), and the
// first that is not is replaced by a draw from what p has beyond q; behind the last comes a draw from
// p. `q` are the very numbers that the drafts were drawn from. A request that `drawn` does not say
// has likeliest drafts instead, so q is 1 for each. A row of p without any chance, as of logits that
// were no numbers, puts out -1; so greedy requests may come here too, p being 1 for their choice.
// `out` and `kept` as in accept_greedy. Grid (requests).
extern "C" __global__ void __launch_bounds__(1024, 1) accept_sampled(
    const int* __restrict__ tokens,      // [requests, width]
    const int* __restrict__ rows_of,     // [requests]
    const int* __restrict__ lengths,     // [requests]
    const uint64_t* __restrict__ seeds,  // [requests]
    const int* __restrict__ drawn,       // [requests]
    const float* __restrict__ p,         // [requests, width, vocab]
    const float* __restrict__ q,         // [requests, width - 1, vocab]
    int* __restrict__ out,               // [requests, width]
    int* __restrict__ kept,              // [requests]
    int requests, int width, int vocab) {
  const int request = blockIdx.x, drafts = rows_of[request] - 1;
  const int* mine = tokens + request * width;
  const float* of_target = p + static_cast<size_t>(request) * width * vocab;
  const float* of_draft = q + static_cast<size_t>(request) * (width - 1) * vocab;
  const bool was_drawn = drawn[request] != 0;
  const int place = lengths[request] + 1;
  const Units seed = seeds[request];
  int accepted = 0;
  for (; accepted < drafts; accepted++) {
    const int draft = mine[accepted + 1];
    if (draft < 0 || draft >= vocab) break;
    const size_t at = static_cast<size_t>(accepted) * vocab + draft;
    const double chance = of_target[at] / (was_drawn ? static_cast<double>(of_draft[at]) : 1.);
    const double number = static_cast<double>(random_bits(seed, place + accepted, kForAccept)) / 9007199254740992.;
    if (!(number < chance)) break;
  }
  int token = -1;
  if (drafts >= 0) {
    const Units bits = random_bits(seed, place + accepted, kForTarget);
    const float* own = of_target + static_cast<size_t>(accepted) * vocab;
    if (accepted < drafts) {
      const float* other = of_draft + static_cast<size_t>(accepted) * vocab;
      const int draft = mine[accepted + 1];
      token = pick(
          vocab,
          [&](int i) { return was_drawn ? fmaxf(own[i] - other[i], 0.f) : i == draft ? 0.f : own[i]; },
          bits);
    }
    // Nothing is left over where p and q differ in their last bits alone; p itself is then meant.
    if (token < 0) token = pick(vocab, [&](int i) { return own[i]; }, bits);
  }
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[request * width + i] = i > accepted ? -1 : i < accepted ? mine[i + 1] : token;
  if (threadIdx.x == 0) kept[request] = drafts < 0 ? 0 : accepted + 1;
}

// Cuts each cache to what was accepted and makes the last token put out the newest one. What lies
// behind a length no longer counts and is written over. Any grid.
extern "C" __global__ void __launch_bounds__(256) commit_round(
    const int* __restrict__ out,   // [requests, width]
    const int* __restrict__ kept,  // [requests]
    int* __restrict__ lengths,     // [requests]
    int* __restrict__ tokens,      // [requests, width]
    int requests, int width) {
  for (int request = blockIdx.x * blockDim.x + threadIdx.x; request < requests; request += gridDim.x * blockDim.x) {
    const int count = kept[request];
    if (count == 0) continue;
    lengths[request] += count;
    tokens[request * width] = out[request * width + count - 1];
  }
}
