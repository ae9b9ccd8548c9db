// What attention does with one tile of positions in shared memory: scores and weights of its keys, then
// sums of its values.
//
// The positions of a tile fall into strands of 16, one step of a tensor core. Each strand has a maximum
// of its own, so the warps that share some rows need not agree on one before they go on.
#pragma once
#include "device.cuh"

constexpr int kTile = 64, kStrand = 16, kStrands = kTile / kStrand;  // positions
constexpr int kPad = 8;  // values behind a row in shared memory: eight rows lie in different banks
constexpr int kWeightPitch = kTile + kPad;

// Whether a row sees anything, and no more than the positions there are.
__device__ __forceinline__ bool sees(int begin, int end, int positions) {
  return begin >= 0 && begin < end && end <= positions;
}
// What scores are held against: where nothing was seen there is no maximum.
__device__ __forceinline__ float reference(float most) { return most == -kInfinity ? 0.f : most; }

__device__ __forceinline__ bool is_finite(uint32_t bits) { return (bits & 0x7f80u) != 0x7f80u; }
// A pair of bf16 with 0 for what is infinite or no number.
__device__ __forceinline__ uint32_t finite_of(uint32_t pair) {
  return (is_finite(pair) ? pair & 0xffffu : 0u) | (is_finite(pair >> 16) ? pair & 0xffff0000u : 0u);
}
__device__ __forceinline__ bool all_finite(const uint4& v) {
  return finite_of(v.x) == v.x && finite_of(v.y) == v.y && finite_of(v.z) == v.z && finite_of(v.w) == v.w;
}

// Sixteen rows, which `team` warps share: in a step of keys its strands, in a step of values its
// dimensions. A lane has rows top + lane / 4 and, as an mma has it, the eighth behind that.
struct Team {
  int top, warps, member;
  int begin[2], end[2];  // what the lane's two rows see
};
// The sums of a lane's rows so far, each in relation to the row's maximum so far. A warp has every
// team-th chunk of 16 dimensions.
template <int kDim>
struct Sums {
  static constexpr int kChunks = (kDim / 16 + 1) / 2;  // a team is two warps at least
  float mixed[kChunks][8] = {}, weight[2] = {}, most[2] = {-kInfinity, -kInfinity};
};
// What a step of keys leaves to the step of values: for each row its weights, and for each strand the
// score they are in relation to, and their sum.
struct Strands {
  bf16* weights;  // [rows, kWeightPitch]
  float* most;    // [rows, kStrands]
  float* weight;  // [rows, kStrands]
};

// Scores are powers of 2: `scale` holds the logarithm of e. `start` is the tile's first position.
template <int kDim>
__device__ __forceinline__ void weigh_keys(const Team& team, const bf16* queries, const bf16* tile,
                                           int start, float scale, const Strands& strands) {
  constexpr int kPitch = kDim + kPad;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int strand = team.member; strand < kStrands; strand += team.warps) {
    float s[2][4] = {};
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      uint32_t a[4], b[4];
      ldmatrix_x4(a, queries + (team.top + lane % 16) * kPitch + k + lane / 16 * 8);
      ldmatrix_x4(b, tile + (strand * kStrand + lane / 16 * 8 + lane % 8) * kPitch + k + lane / 8 % 2 * 8);
      mma_m16n8k16(s[0], a, {b[0], b[1]});
      mma_m16n8k16(s[1], a, {b[2], b[3]});
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = team.top + half * 8 + lane / 4, column = strand * kStrand + lane % 4 * 2;
      float most = -kInfinity, weight = 0.f;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int at = start + column + j / 2 * 8 + j % 2;
        float& score = s[j / 2][half * 2 + j % 2];
        score = at >= team.begin[half] && at < team.end[half] ? score * scale : -kInfinity;
        most = fmaxf(most, score);
      }
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const uint32_t pair = pack_bf16x2(exp2f(s[n][half * 2] - reference(most)),
                                          exp2f(s[n][half * 2 + 1] - reference(most)));
        *reinterpret_cast<uint32_t*>(strands.weights + row * kWeightPitch + column + n * 8) = pair;
        // Summed as they are multiplied, rounded: so they make up 1 in the end.
        weight += unpack_bf16x2(pair).x + unpack_bf16x2(pair).y;
      }
      weight += __shfl_xor_sync(kFullWarp, weight, 1);
      weight += __shfl_xor_sync(kFullWarp, weight, 2);
      if (lane % 4 == 0) {
        strands.most[row * kStrands + strand] = most;
        strands.weight[row * kStrands + strand] = weight;
      }
    }
  }
}

// `strange`: the tile holds values that are no finite numbers and that not every row sees. A weight of 0
// would not keep them out of a sum, so they are left out first, and added to the rows that see them.
template <int kDim>
__device__ __forceinline__ void mix_values(const Team& team, const bf16* tile, int start, bool strange,
                                           const Strands& strands, Sums<kDim>& sums) {
  constexpr int kPitch = kDim + kPad;
  const int lane = threadIdx.x % 32;
  float keep[2], factor[2][kStrands];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = team.top + half * 8 + lane / 4;
    const float4 m = reinterpret_cast<const float4*>(strands.most)[row];
    const float4 w = reinterpret_cast<const float4*>(strands.weight)[row];
    const float before = sums.most[half], now = fmaxf(fmaxf(before, fmaxf(m.x, m.y)), fmaxf(m.z, m.w));
    keep[half] = exp2f(before - reference(now));
    factor[half][0] = exp2f(m.x - reference(now)), factor[half][1] = exp2f(m.y - reference(now));
    factor[half][2] = exp2f(m.z - reference(now)), factor[half][3] = exp2f(m.w - reference(now));
    sums.most[half] = now;
    sums.weight[half] = sums.weight[half] * keep[half] + w.x * factor[half][0] + w.y * factor[half][1] +
                        w.z * factor[half][2] + w.w * factor[half][3];
  }
#pragma unroll
  for (int i = 0; i < Sums<kDim>::kChunks; i++) {
    const int chunk = team.member + i * team.warps;
    if (chunk >= kDim / 16) break;
    float(&mixed)[8] = sums.mixed[i];
#pragma unroll
    for (int j = 0; j < 8; j++) mixed[j] *= keep[j / 2 % 2];
#pragma unroll
    for (int strand = 0; strand < kStrands; strand++) {
      uint32_t a[4], b[4];
      float part[2][4] = {};
      ldmatrix_x4(a, strands.weights + (team.top + lane % 16) * kWeightPitch + strand * kStrand + lane / 16 * 8);
      ldmatrix_x4_trans(b, tile + (strand * kStrand + lane % 16) * kPitch + chunk * 16 + lane / 16 * 8);
      if (strange)
        for (uint32_t& pair : b) pair = finite_of(pair);
      mma_m16n8k16(part[0], a, {b[0], b[1]});
      mma_m16n8k16(part[1], a, {b[2], b[3]});
#pragma unroll
      for (int j = 0; j < 8; j++) mixed[j] += part[j / 4][j % 4] * factor[j / 2 % 2][strand];
    }
    if (!strange) continue;
#pragma unroll 1
    for (int at = 0; at < kTile; at++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        if (start + at < team.begin[half] || start + at >= team.end[half]) continue;
        const int row = team.top + half * 8 + lane / 4;
        const float times = exp2f(strands.most[row * kStrands + at / kStrand] - reference(sums.most[half]));
        const float weight = to_float(strands.weights[row * kWeightPitch + at]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float v = to_float(tile[at * kPitch + chunk * 16 + j / 2 * 8 + lane % 4 * 2 + j % 2]);
          if (!is_finite(__float_as_uint(v) >> 16)) mixed[j / 2 * 4 + half * 2 + j % 2] += weight * v * times;
        }
      }
    }
  }
}
