// Who a thread is, what it waits for, and the report of a launch that does not get on.
#include "machine.h"

namespace sim {
namespace {

std::string label(const Block& block, uint3 place) {
  return format("thread (%u,%u,%u) of block (%u,%u,%u)", place.x, place.y, place.z, block.place.x,
                block.place.y, block.place.z);
}

std::string activity(const Thread& thread) {
  if (thread.state == State::done) return "ended";
  const Waiting& waiting = thread.waiting;
  const std::string at = " at " + where(waiting.pc);
  switch (waiting.what) {
    case Waiting::nothing: return "can run";
    case Waiting::poll: return "polling" + at;
    case Waiting::block: return "waiting for __syncthreads" + at;
    case Waiting::lanes:
      return format("waiting for the lanes %08x in a %s", thread.post.mask, thread.post.name) + at;
    case Waiting::named: {
      const auto& barrier = *static_cast<const Barrier*>(waiting.on);
      return format("waiting for barrier %td (%u of %u threads)", &barrier - thread.block->barriers,
                    barrier.arrived, barrier.expected) +
             at;
    }
    case Waiting::mbarrier: {
      auto* address = static_cast<uint64_t*>(const_cast<void*>(waiting.on));
      const Mbarrier& barrier = thread.block->mbarriers.at(address);
      return "waiting for an mbarrier at " + machine.memory.describe(*thread.block, address, 8) +
             format(" (phase %u, %u arrivals and %lld bytes missing)", barrier.phases - 1,
                    barrier.pending, static_cast<long long>(barrier.bytes)) +
             at;
    }
  }
  return "";
}

}  // namespace

uint3 unfold(uint32_t index, const uint32_t (&size)[3]) {
  return {index % size[0], index / size[0] % size[1], index / (size[0] * size[1])};
}

std::string label(const Thread& thread) { return label(*thread.block, thread.place); }

std::string label(Name name) {
  Block block;
  block.place = unfold(name.block, machine.request->grid);
  return label(block, unfold(name.thread, machine.request->block));
}

void Machine::report_stuck(const char* what) {
  std::string text = what;
  for (Block& block : blocks_) {
    if (block.alive == 0) continue;
    text += format("; block (%u,%u,%u):", block.place.x, block.place.y, block.place.z);
    std::string now = activity(block.threads[0]), next;
    for (uint32_t from = 0, i = 1; i <= threads_in_block; i++) {
      next = i < threads_in_block ? activity(block.threads[i]) : "";
      if (next == now) continue;
      text += from + 1 == i ? format(" thread %u", from) : format(" threads %u-%u", from, i - 1);
      text += ' ' + now + (i < threads_in_block ? "," : "");
      from = i;
      now = next;
    }
  }
  report.add("deadlock", text, "");
}

}  // namespace sim
