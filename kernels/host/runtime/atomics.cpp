// Atomics, fences, and what they hand from one thread to another: a store hands on what its thread
// had released, and a load takes it in at once (acquire) or at the next fence (relaxed).
#include <cstring>
#include <unordered_map>

#include "machine.h"

namespace sim {
namespace {

struct Handed {
  Clock to_device, to_block;
  uint32_t block = 0;
};
std::unordered_map<const void*, Handed> handed_on;

}  // namespace

void forget_atomics() { handed_on.clear(); }

void fence(Scope scope) {
  if (!machine.checked) return;
  Thread& thread = *machine.current;
  for (int wide = 0; wide <= int(scope); wide++) acquire(thread, thread.loaded[wide]);
  const Clock seen = release(thread);
  for (int wide = 0; wide <= int(scope); wide++) thread.fenced[wide] = seen;
}

void observe(const void* address, size_t size, Order order, uintptr_t pc) {
  Thread& thread = *machine.current;
  machine.memory.touch(thread, address, size, false, true, pc);
  const auto found = handed_on.find(address);
  if (found == handed_on.end()) return;
  const Handed& handed = found->second;
  const bool near = handed.block == thread.name.block;
  if (order == Order::acquire || order == Order::both) {
    acquire(thread, handed.to_device);
    if (near) acquire(thread, handed.to_block);
  } else {
    thread.loaded[int(Scope::device)].join(handed.to_device);
    if (near) thread.loaded[int(Scope::block)].join(handed.to_block);
  }
}

void publish(const void* address, size_t size, Order order, bool changes, uintptr_t pc) {
  Thread& thread = *machine.current;
  machine.memory.touch(thread, address, size, true, true, pc);
  machine.advanced();
  Handed& handed = handed_on[address];
  // A plain store ends what earlier stores handed on; a read-modify-write carries it along.
  if (!changes) handed = Handed{};
  if (handed.block != thread.name.block) handed.to_block = Clock{};
  handed.block = thread.name.block;
  if (order == Order::release || order == Order::both) {
    const Clock seen = release(thread);
    handed.to_device.join(seen);
    handed.to_block.join(seen);
  } else {
    handed.to_device.join(thread.fenced[int(Scope::device)]);
    handed.to_block.join(thread.fenced[int(Scope::block)]);
  }
}

uint64_t atomic_load(const void* address, size_t size, Order order, bool changes) {
  const uintptr_t pc = SIM_CALLER;
  if (reinterpret_cast<uintptr_t>(address) % size != 0)
    misuse("misaligned", pc,
           format("does an atomic on %zu bytes that are not aligned to that", size));
  if (!changes) poll(pc);  // nobody polls without letting the others run
  machine.maybe_preempt();
  if (machine.checked) observe(address, size, order, pc);
  uint64_t bits = 0;
  memcpy(&bits, address, size);
  return bits;
}

void atomic_store(void* address, size_t size, uint64_t bits, Order order, bool changes) {
  if (machine.checked) publish(address, size, order, changes, SIM_CALLER);
  memcpy(address, &bits, size);
  machine.advanced();
}

}  // namespace sim
