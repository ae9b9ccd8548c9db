// Shuffles, votes, reductions, ldmatrix and mma: the lanes of a mask come, then all get their
// result.
#include <algorithm>
#include <cstring>

#include "machine.h"

namespace sim {
namespace {

constexpr uint32_t kAll = 0xffffffffu;

template <class F>
void each(uint32_t lanes, F f) {
  for (; lanes != 0; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

bool try_perform(Warp& warp, uint32_t mask) {
  const uint32_t lanes = mask & warp.alive;
  if (lanes == 0) return false;
  const Post& first = warp.lanes[__builtin_ctz(lanes)]->post;
  bool all = true, same = true;
  each(lanes, [&](int lane) {
    const Post& post = warp.lanes[lane]->post;
    all &= post.perform != nullptr && post.mask == mask;
    same &= post.perform == first.perform && post.kind == first.kind;
  });
  if (!all) return false;
  if (!same) {
    misuse("mask", 0,
           format("and other lanes do different warp operations under the mask %08x", mask));
    return true;
  }
  first.perform(warp, lanes);
  each(lanes, [&](int lane) {
    Thread& thread = *warp.lanes[lane];
    thread.post.perform = nullptr;
    if (thread.state == State::waiting) machine.wake(thread);
  });
  return true;
}

void join_in(Post post, uintptr_t pc) {
  Thread& thread = *machine.current;
  Warp& warp = *thread.warp;
  if ((post.mask >> thread.lane & 1) == 0)
    return misuse("mask", pc,
                  format("is lane %u, which its mask %08x leaves out, in a %s", thread.lane,
                         post.mask, post.name));
  // Each waits for the other to come with its own mask, which neither ever will.
  each(post.mask & warp.alive & ~(1u << thread.lane), [&](int lane) {
    const Post& other = warp.lanes[lane]->post;
    if (other.perform != nullptr && other.mask != post.mask && (other.mask >> thread.lane & 1))
      misuse("mask", pc,
             format("comes to a %s with the mask %08x, while lane %d of the mask waits in"
                    " a %s with the mask %08x",
                    post.name, post.mask, lane, other.name, other.mask));
  });
  thread.post = post;
  if (!try_perform(warp, post.mask)) machine.wait({Waiting::lanes, pc});
}

void perform_shuffle(Warp& warp, uint32_t lanes) {
  uint64_t brought[32];
  each(lanes, [&](int lane) { brought[lane] = warp.lanes[lane]->post.bits; });
  each(lanes, [&](int lane) {
    Post& post = warp.lanes[lane]->post;
    const int first = lane & ~(post.width - 1), end = first + post.width;
    int from = lane;
    switch (Shuffle(post.kind)) {
      case Shuffle::from: from = first + (post.argument & (post.width - 1)); break;
      case Shuffle::up: from = lane - post.argument; break;
      case Shuffle::down: from = lane + post.argument; break;
      case Shuffle::across: from = lane ^ post.argument; break;
    }
    // Below or beyond its group a lane keeps its own value; across, a lower group may be read.
    if (from >= end || (from < first && Shuffle(post.kind) != Shuffle::across)) from = lane;
    // What a lane that takes no part would have brought is undefined; NaN shows it.
    post.bits = lanes >> from & 1 ? brought[from] : ~uint64_t(0);
  });
}

void perform_vote(Warp& warp, uint32_t lanes) {
  uint64_t brought[32];
  uint32_t ballot = 0;
  bool equal = true;
  Clock met;
  const int first = __builtin_ctz(lanes);
  const bool syncs = Vote(warp.lanes[first]->post.kind) == Vote::sync && machine.checked;
  each(lanes, [&](int lane) {
    brought[lane] = warp.lanes[lane]->post.bits;
    ballot |= uint32_t(brought[lane] != 0) << lane;
    equal &= brought[lane] == brought[first];
    if (syncs) met.join(warp.lanes[lane]->clock);
  });
  if (syncs)
    each(lanes, [&](int lane) { met.raise(warp.lanes[lane]->name, warp.lanes[lane]->time); });
  each(lanes, [&](int lane) {
    Thread& thread = *warp.lanes[lane];
    uint32_t alike = 0;
    each(lanes, [&](int other) { alike |= uint32_t(brought[other] == brought[lane]) << other; });
    switch (Vote(thread.post.kind)) {
      case Vote::any: thread.post.bits = ballot != 0; break;
      case Vote::all: thread.post.bits = ballot == lanes; break;
      case Vote::ballot: thread.post.bits = ballot; break;
      case Vote::match_any: thread.post.bits = alike; break;
      case Vote::match_all: thread.post.bits = equal ? lanes : 0; break;
      case Vote::sync: break;
    }
    if (!syncs) return;
    thread.clock = met;
    thread.time++;
  });
}

void perform_reduce(Warp& warp, uint32_t lanes) {
  const int first = __builtin_ctz(lanes);
  auto result = uint32_t(warp.lanes[first]->post.bits);
  each(lanes & (lanes - 1), [&](int lane) {
    const auto value = uint32_t(warp.lanes[lane]->post.bits);
    switch (Reduce(warp.lanes[first]->post.kind)) {
      case Reduce::add: result += value; break;
      case Reduce::min: result = std::min(result, value); break;
      case Reduce::max: result = std::max(result, value); break;
      case Reduce::min_signed: result = uint32_t(std::min(int32_t(result), int32_t(value))); break;
      case Reduce::max_signed: result = uint32_t(std::max(int32_t(result), int32_t(value))); break;
      case Reduce::bit_and: result &= value; break;
      case Reduce::bit_or: result |= value; break;
      case Reduce::bit_xor: result ^= value; break;
    }
  });
  each(lanes, [&](int lane) { warp.lanes[lane]->post.bits = result; });
}

bool whole_warp(uint32_t lanes, const char* name) {
  if (lanes == kAll) return true;
  misuse("mask", 0, format("is in a %s without all 32 lanes (%08x)", name, lanes));
  return false;
}

// Matrix i of 8x8 has its row r at the address that lane 8i + r gave.
void perform_ldmatrix(Warp& warp, uint32_t lanes) {
  if (!whole_warp(lanes, "ldmatrix")) return;
  uint16_t matrices[4][8][8];
  const int count = warp.lanes[0]->post.argument;
  for (int i = 0; i < count * 8; i++) memcpy(matrices[i / 8][i % 8], warp.lanes[i]->post.in, 16);
  each(lanes, [&](int lane) {
    const Post& post = warp.lanes[lane]->post;
    const int row = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < count; i++) {
      const auto& matrix = matrices[i];
      const bool transposed = post.width != 0;
      const uint32_t low = transposed ? matrix[column][row] : matrix[row][column];
      const uint32_t high = transposed ? matrix[column + 1][row] : matrix[row][column + 1];
      static_cast<uint32_t*>(post.out)[i] = low | high << 16;
    }
  });
}

float bf16_half(uint32_t pair, int which) {
  const uint32_t bits = which == 0 ? pair << 16 : pair & 0xffff0000u;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Fragments as the PTX ISA lays them out for mma.m16n8k16 with .bf16: lane 4g + t holds, of A, rows
// g and g+8 at columns 2t, 2t+1 and the same 8 further; of B, column g at those rows; of C and D,
// rows g and g+8 at columns 2t, 2t+1.
void perform_mma(Warp& warp, uint32_t lanes) {
  if (!whole_warp(lanes, "mma")) return;
  float a[16][16], b[16][8];
  each(lanes, [&](int lane) {
    const auto* left = static_cast<const uint32_t*>(warp.lanes[lane]->post.in);
    const auto* right = static_cast<const uint32_t*>(warp.lanes[lane]->post.more);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int which = 0; which < 2; which++) {
      for (int i = 0; i < 4; i++)
        a[group + i % 2 * 8][pair + which + i / 2 * 8] = bf16_half(left[i], which);
      for (int i = 0; i < 2; i++) b[pair + which + i * 8][group] = bf16_half(right[i], which);
    }
  });
  each(lanes, [&](int lane) {
    auto* d = static_cast<float*>(warp.lanes[lane]->post.out);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; i++) {
      float sum = 0;
      for (int k = 0; k < 16; k++) sum += a[group + i / 2 * 8][k] * b[k][pair + i % 2];
      d[i] += sum;
    }
  });
}

}  // namespace

uint64_t shuffle(unsigned mask, Shuffle kind, uint64_t bits, int argument, int width) {
  Post post{perform_shuffle, "shuffle", mask, int(kind), argument, width, bits};
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    misuse("mask", SIM_CALLER,
           format("shuffles with the width %d, no power of two up to 32", width));
  join_in(post, SIM_CALLER);
  return machine.current->post.bits;
}

unsigned vote(unsigned mask, Vote kind, uint64_t value) {
  const char* name = kind == Vote::sync ? "__syncwarp" : "vote";
  join_in(Post{perform_vote, name, mask, int(kind), 0, 32, value}, SIM_CALLER);
  return unsigned(machine.current->post.bits);
}

unsigned reduce(unsigned mask, Reduce kind, unsigned value) {
  join_in(Post{perform_reduce, "reduction", mask, int(kind), 0, 32, value}, SIM_CALLER);
  return unsigned(machine.current->post.bits);
}

void ldmatrix(uint32_t* out, const void* row, int count, bool transposed) {
  Thread& thread = *machine.current;
  if (int(thread.lane) < count * 8) {  // the other lanes' addresses are not used
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
      misuse("misaligned", SIM_CALLER, "gives ldmatrix a row that is not aligned to 16 bytes");
    if (!machine.memory.is_shared(*thread.block, row, 16))
      misuse("out-of-bounds", SIM_CALLER,
             "gives ldmatrix a row at " + machine.memory.describe(*thread.block, row, 16) +
                 ", outside shared memory");
    machine.memory.touch(thread, row, 16, false, false, SIM_CALLER);
  }
  Post post{perform_ldmatrix, "ldmatrix", kAll, count * 2 + int(transposed), count, transposed};
  post.out = out;
  post.in = row;
  join_in(post, SIM_CALLER);
}

void mma_m16n8k16(float* d, const uint32_t* a, const uint32_t* b) {
  Post post{perform_mma, "mma", kAll};
  post.out = d;
  post.in = a;
  post.more = b;
  join_in(post, SIM_CALLER);
}

void leave_warp(Thread& thread) {
  const uint32_t own = 1u << thread.lane;
  each(thread.warp->alive, [&](int lane) {
    const Post& post = thread.warp->lanes[lane]->post;
    if (post.perform != nullptr && (post.mask & own)) try_perform(*thread.warp, post.mask);
  });
}

}  // namespace sim
