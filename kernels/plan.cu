// What a pass is about, made on the device: which positions its rows see, and a draft's block of ids.
//
// Rows, `width` and rows_of are those of round.cu.
#include "device.cuh"

// The range of positions that every row sees, by the request's length. A causal row sees those up to
// its own; any other sees the whole segment of its request too. A window of w is the w positions up to
// the row's own, and without causality as many after it; 0 is no window. Rows that are not in use, or
// lie at `positions` or beyond, see nothing. Any grid.
extern "C" __global__ void __launch_bounds__(256) see_rows(
    const int* __restrict__ lengths,  // [requests]
    const int* __restrict__ rows_of,  // [requests]
    int* __restrict__ begins,         // [requests, width]
    int* __restrict__ ends,           // [requests, width]
    int requests, int width, int positions, int window, int causal) {
  const int rows = requests * width;
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
    const int request = row / width, index = row % width, position = lengths[request] + index;
    const bool used = index < rows_of[request] && position < positions;
    // How many positions the row sees from its own on; no sum of it overflows, however wide a window.
    const int after = min(lengths[request] + rows_of[request], positions) - position;
    const int ahead = causal ? 1 : window ? min(window, after) : after;
    begins[row] = used && window ? max(0, position + 1 - window) : 0;
    ends[row] = used ? position + ahead : 0;
  }
}

// The ids of a draft's block: the newest token of its request, and masks behind it. Any grid.
extern "C" __global__ void __launch_bounds__(256) block_ids(
    const int* __restrict__ tokens,  // [requests, slots + 1]
    int* __restrict__ ids,           // [requests, width]
    int requests, int slots, int width, int mask) {
  const int rows = requests * width;
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x)
    ids[row] = row % width ? mask : tokens[row / width * (slots + 1)];
}
