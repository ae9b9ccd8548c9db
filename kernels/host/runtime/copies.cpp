// Copies that go on while threads compute: cp.async, awaited by the thread that issued it, and bulk
// copies, awaited through an mbarrier. Both land as late as they may.
#include <algorithm>
#include <cstring>

#include "machine.h"

namespace sim {
namespace {

constexpr uint32_t kMostCount = (1u << 20) - 1;

bool aligned(const void* address, size_t size) {
  return reinterpret_cast<uintptr_t>(address) % size == 0;
}

void check(const Copy& copy, const char* name, size_t alignment) {
  Thread& thread = *machine.current;
  if (!aligned(copy.to, alignment) || (copy.valid != 0 && !aligned(copy.from, alignment)))
    misuse("misaligned", copy.pc,
           format("gives %s addresses that are not aligned to %zu bytes", name, alignment));
  if (!machine.memory.is_shared(*thread.block, copy.to, copy.size))
    misuse("out-of-bounds", copy.pc,
           format("lets %s write %u bytes at %s, outside shared memory", name, copy.size,
                  machine.memory.describe(*thread.block, copy.to, copy.size).c_str()));
}

// From here on nobody may use the destination, and in a build without checks NaN lies there.
void set_out(const Copy& copy) {
  Block& block = *machine.current->block;
  memset(copy.to, 0xff, copy.size);
  machine.memory.set_under_way(block, copy.to, copy.size, true);
}

void finish(Thread& thread, const Copy& copy) {
  machine.memory.set_under_way(*thread.block, copy.to, copy.size, false);
  machine.memory.touch(thread, copy.to, copy.size, true, false, copy.pc);
  memset(copy.to, 0, copy.size);
  if (copy.valid != 0) memcpy(copy.to, copy.from, copy.valid);
}

Mbarrier* find(uint64_t* barrier, uintptr_t pc) {
  Thread& thread = *machine.current;
  const auto found = thread.block->mbarriers.find(barrier);
  if (found == thread.block->mbarriers.end()) {
    misuse("mbarrier", pc,
           "uses an mbarrier at " + machine.memory.describe(*thread.block, barrier, 8) +
               " that was not initialised");
    return nullptr;
  }
  machine.memory.touch(thread, barrier, 8, true, true, pc);
  return &found->second;
}

void maybe_complete(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phases++;
  barrier.pending = barrier.count;
  barrier.completed = barrier.arrived;
  barrier.arrived = Clock{};
  for (Thread* thread : barrier.waiting) machine.wake(*thread);
  barrier.waiting.clear();
}

}  // namespace

void copy_async(void* shared, const void* global, unsigned size, unsigned valid) {
  const Copy copy{static_cast<char*>(shared), static_cast<const char*>(global), size, valid,
                  SIM_CALLER};
  if (valid > size)
    misuse("out-of-bounds", copy.pc, format("asks cp.async for %u valid bytes of %u", valid, size));
  check(copy, "cp.async", size);
  Thread& thread = *machine.current;
  machine.memory.touch(thread, global, valid, false, false, copy.pc);
  machine.memory.touch(thread, shared, size, true, false, copy.pc);
  set_out(copy);
  thread.open.push_back(copy);
  machine.maybe_preempt();
}

void copy_commit() {
  Thread& thread = *machine.current;
  thread.committed.push_back(std::move(thread.open));
  thread.open.clear();
}

void copy_wait(unsigned groups_left, bool commits) {
  Thread& thread = *machine.current;
  if (commits) copy_commit();
  while (thread.committed.size() > groups_left) {
    for (const Copy& copy : thread.committed.front()) finish(thread, copy);
    thread.committed.pop_front();
  }
}

void mbarrier_init(uint64_t* barrier, unsigned count) {
  const uintptr_t pc = SIM_CALLER;
  Thread& thread = *machine.current;
  if (!aligned(barrier, 8) || !machine.memory.is_shared(*thread.block, barrier, 8))
    return misuse("mbarrier", pc,
                  "initialises an mbarrier outside shared memory, or not aligned to 8");
  if (count == 0 || count > kMostCount)
    return misuse("mbarrier", pc, format("initialises an mbarrier with the count %u", count));
  machine.memory.touch(thread, barrier, 8, true, false, pc);
  Mbarrier made;
  made.count = made.pending = count;
  made.engine = {thread.name.block,
                 machine.threads_in_block + uint32_t(thread.block->mbarriers.size())};
  thread.block->mbarriers[barrier] = made;
}

void mbarrier_fence() {
  for (auto& [address, barrier] : machine.current->block->mbarriers) barrier.fenced = true;
}

void mbarrier_arrive(uint64_t* address, unsigned expected_bytes) {
  const uintptr_t pc = SIM_CALLER;
  machine.maybe_preempt();
  Mbarrier* barrier = find(address, pc);
  if (barrier == nullptr) return;
  if (barrier->pending == 0)
    return misuse("mbarrier", pc,
                  format("is one more to arrive at an mbarrier of %u", barrier->count));
  if (machine.checked) barrier->arrived.join(release(*machine.current));
  barrier->bytes += expected_bytes;
  barrier->pending--;
  machine.advanced();
  if (barrier->pending == 0 && barrier->bytes < 0)
    return misuse("mbarrier", pc,
                  format("completes an mbarrier to which %lld bytes more were copied"
                         " than were expected",
                         static_cast<long long>(-barrier->bytes)));
  maybe_complete(*barrier);
}

void mbarrier_wait(uint64_t* address, unsigned parity) {
  const uintptr_t pc = SIM_CALLER;
  Mbarrier* barrier = find(address, pc);
  if (barrier == nullptr) return;
  Thread& thread = *machine.current;
  while (barrier->phases % 2 != parity % 2) {
    barrier->waiting.push_back(&thread);
    machine.wait({Waiting::mbarrier, pc, address});
  }
  if (machine.checked) acquire(thread, barrier->completed);
}

void bulk_copy(void* shared, const void* global, unsigned bytes, uint64_t* address) {
  const Copy copy{static_cast<char*>(shared), static_cast<const char*>(global), bytes, bytes,
                  SIM_CALLER};
  if (bytes == 0 || bytes % 16 != 0)
    return misuse("misaligned", copy.pc,
                  format("gives cp.async.bulk %u bytes, no multiple of 16", bytes));
  check(copy, "cp.async.bulk", 16);
  Mbarrier* barrier = find(address, copy.pc);
  if (barrier == nullptr) return;
  if (!barrier->fenced)
    return misuse("mbarrier", copy.pc,
                  "starts a bulk copy for an mbarrier whose initialisation no "
                  "fence_mbarrier_init made known to the copy engine");
  Thread& thread = *machine.current;
  machine.memory.touch(thread, global, bytes, false, false, copy.pc);
  // The write is the engine's, ordered after what the issuing thread knows now.
  const Clock issued = machine.checked ? release(thread) : Clock{};
  machine.memory.touch(thread, shared, bytes,
                       Access{barrier->engine, barrier->phases, copy.pc, true, false, true},
                       issued);
  set_out(copy);
  thread.block->bulk.push_back({copy, address});
  machine.maybe_preempt();
}

void land(Block& block, size_t which) {
  const Bulk bulk = block.bulk[which];
  block.bulk.erase(block.bulk.begin() + std::ptrdiff_t(which));
  machine.memory.set_under_way(block, bulk.copy.to, bulk.copy.size, false);
  memcpy(bulk.copy.to, bulk.copy.from, bulk.copy.size);
  Mbarrier& barrier = block.mbarriers.at(bulk.barrier);
  if (machine.checked) barrier.arrived.raise(barrier.engine, barrier.phases);
  barrier.bytes -= bulk.copy.size;
  machine.advanced();
  if (barrier.pending == 0 && barrier.bytes < 0) {
    machine.report.add(
        "mbarrier",
        format("the bulk copy issued at %s brings %lld bytes more than its mbarrier expects",
               where(bulk.copy.pc).c_str(), static_cast<long long>(-barrier.bytes)),
        "");
    machine.stop();
    return;
  }
  maybe_complete(barrier);
}

}  // namespace sim
