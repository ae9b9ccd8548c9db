// __syncthreads and the named barriers.
#include "machine.h"

namespace sim {
namespace {

constexpr unsigned kWhole = 0;  // __syncthreads is barrier 0, for all threads that still run

// Everybody has come: what each has done is now known to all who wait.
void complete(Barrier& barrier) {
  for (Thread* thread : barrier.waiting) {
    thread->clock = barrier.gathered;
    thread->time++;
    thread->nonzero = barrier.nonzero;
    thread->values = barrier.values;
    if (thread->state == State::waiting) machine.wake(*thread);
  }
  barrier = Barrier{};
}

void gather(Thread& thread, Barrier& barrier) {
  if (machine.checked) {
    barrier.gathered.join(thread.clock);
    barrier.gathered.raise(thread.name, thread.time);
  }
  barrier.arrived++;
}

}  // namespace

int block_barrier(Gather kind, int value, int line) {
  const uintptr_t pc = SIM_CALLER;
  Thread& thread = *machine.current;
  Block& block = *thread.block;
  Barrier& barrier = block.barriers[kWhole];
  if (barrier.arrived == 0) {
    barrier.line = line;
    barrier.pc = pc;
  } else if (barrier.line != line) {
    misuse(
        "divergence", pc,
        format("comes to a __syncthreads while others of its block wait in the one at %s; it comes",
               where(barrier.pc).c_str()));
  }
  barrier.nonzero += value != 0;
  barrier.values++;
  gather(thread, barrier);
  barrier.waiting.push_back(&thread);
  if (barrier.arrived == block.alive)
    complete(barrier);
  else
    machine.wait({Waiting::block, pc});
  if (kind == Gather::count) return thread.nonzero;
  if (kind == Gather::all_of) return thread.nonzero == thread.values;
  return thread.nonzero != 0;
}

void named_barrier(unsigned id, unsigned threads, bool waits) {
  const uintptr_t pc = SIM_CALLER;
  Thread& thread = *machine.current;
  if (id == kWhole || id >= 16)
    return misuse("barrier", pc, format("names barrier %u; there are 1 to 15", id));
  if (threads == 0 || threads % 32 != 0)
    return misuse("barrier", pc,
                  format("asks barrier %u for %u threads, no multiple of 32", id, threads));
  Barrier& barrier = thread.block->barriers[id];
  if (barrier.arrived == 0) {
    barrier.expected = threads;
    barrier.pc = pc;
  } else if (barrier.expected != threads) {
    return misuse("barrier", pc,
                  format("asks barrier %u for %u threads, and %s asked for %u; it asks", id,
                         threads, where(barrier.pc).c_str(), barrier.expected));
  }
  gather(thread, barrier);
  if (!waits) thread.time++;
  if (waits) barrier.waiting.push_back(&thread);
  if (barrier.arrived == barrier.expected)
    complete(barrier);
  else if (waits)
    machine.wait({Waiting::named, pc, &barrier});
  if (!waits) machine.advanced();
}

void leave_barriers(Block& block) {
  Barrier& barrier = block.barriers[kWhole];
  if (block.alive != 0 && barrier.arrived == block.alive) complete(barrier);
}

}  // namespace sim
