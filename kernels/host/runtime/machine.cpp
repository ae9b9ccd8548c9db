#include "machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace sim {

Machine machine;

namespace {

constexpr uint64_t kMostIdleTurns = 200'000;

}  // namespace

Clock release(Thread& thread) {
  Clock all = thread.clock;
  all.raise(thread.name, thread.time);
  thread.time++;
  return all;
}

void acquire(Thread& thread, const Clock& clock) {
  thread.clock.join(clock);
  thread.time++;
}

void misuse(const char* kind, uintptr_t pc, const std::string& text) {
  machine.report.add(kind, label(*machine.current) + ' ' + text + (pc ? " at " + where(pc) : ""),
                     "");
  machine.stop();
}

// SplitMix64: the same order for a seed on every machine, which the standard library does not
// promise.
uint32_t Machine::random(uint32_t below) {
  uint64_t bits = random_ += 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return uint32_t((bits ^ bits >> 31) % below);
}

void Machine::run() {
  const auto& [x, y, z] = request->grid;
  const uint32_t total = x * y * z;
  const uint32_t resident = request->resident == 0 ? total : std::min(total, request->resident);
  threads_in_block = request->block[0] * request->block[1] * request->block[2];
  random_ = request->seed;
  style_ = in_order() ? Style::in_order : Style(1 + request->seed % 3);
  order_.resize(total);
  for (uint32_t i = 0; i < total; i++) order_[i] = i;
  for (uint32_t i = total; !in_order() && i > 1; i--) std::swap(order_[i - 1], order_[random(i)]);
  started_ = running_ = 0;
  ready_.clear();
  spinning_.clear();
  shown_ = nullptr;
  last_warp_ = nullptr;
  idle_turns_ = 0;
  until_preempted_ = 1;
  stopped_ = false;

  const size_t needed = size_t(resident) * threads_in_block;
  if (stack_count_ < needed) {
    if (stacks_ != nullptr) munmap(stacks_, stack_count_ * kStackBytes);
    stacks_ = static_cast<char*>(mmap(nullptr, needed * kStackBytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    stack_count_ = needed;
  }
  blocks_.assign(resident, Block{});
  for (uint32_t slot = 0; slot < resident; slot++) start_block(slot, order_[started_++]);
  while (running_ != 0 && !stopped_) {
    Thread* next = pick();
    if (next != nullptr)
      resume(*next);
    else if (!land_something()) {
      report_stuck("deadlock");
      stop();
    }
  }
  blocks_.clear();
  current = nullptr;
}

void Machine::start_block(uint32_t slot, uint32_t index) {
  Block& block = blocks_[slot];
  block = Block{};
  block.slot = slot;
  block.index = index;
  block.place = unfold(index, request->grid);
  block.alive = threads_in_block;
  memory.prepare(block, request->shared_bytes, checked);
  block.threads.resize(threads_in_block);
  block.warps.resize((threads_in_block + 31) / 32);
  for (uint32_t i = 0; i < threads_in_block; i++) {
    Thread& thread = block.threads[i];
    thread.block = &block;
    thread.warp = &block.warps[i / 32];
    thread.name = {index, i};
    thread.place = unfold(i, request->block);
    thread.lane = i % 32;
    thread.warp->lanes[thread.lane] = &thread;
    thread.warp->alive |= 1u << thread.lane;
    thread.fiber.stack = stacks_ + (size_t(slot) * threads_in_block + i) * kStackBytes;
    prepare(thread.fiber, &thread_main);
    ready_.push_back(&thread);
  }
  running_++;
}

void Machine::end_block(Block& block) {
  running_--;
  if (shown_ == &block) shown_ = nullptr;
  if (!block.bulk.empty() && !stopped_)
    report.add(
        "unwaited-copy",
        format("block (%u,%u,%u) ends while the bulk copy issued at %s is under way", block.place.x,
               block.place.y, block.place.z, where(block.bulk.front().copy.pc).c_str()),
        "");
  if (started_ < order_.size() && !stopped_) start_block(block.slot, order_[started_++]);
}

void Machine::thread_main() {
  begin_fiber();
  machine.kernel->run(machine.request->arguments);
  Thread& thread = *machine.current;
  bool waited = thread.open.empty();
  for (const std::vector<Copy>& group : thread.committed) waited &= group.empty();
  if (!waited) misuse("unwaited-copy", 0, "ends without waiting for its cp.async copies");
  thread.state = State::done;
  thread.block->alive--;
  thread.warp->alive &= ~(1u << thread.lane);
  leave_warp(thread);
  leave_barriers(*thread.block);
  machine.advanced();
  switch_fiber(thread.fiber, machine.scheduler_, true);
}

Thread* Machine::pick() {
  if (!in_order() && random(8) == 0) land_something();
  if (ready_.empty()) {
    ready_.assign(spinning_.begin(), spinning_.end());
    spinning_.clear();
    // What spins may be waiting for a copy.
    if (!ready_.empty()) land_something();
  }
  if (ready_.empty()) return nullptr;
  size_t at = 0;
  if (style_ == Style::any) at = random(uint32_t(ready_.size()));
  if (style_ == Style::latest) at = ready_.size() - 1;
  if (style_ == Style::warp) {
    at = random(uint32_t(ready_.size()));
    for (size_t i = 0; i < ready_.size(); i++)
      if (ready_[i]->warp == last_warp_) at = i;
  }
  Thread* thread = ready_[at];
  ready_.erase(ready_.begin() + std::ptrdiff_t(at));
  last_warp_ = thread->warp;
  return thread;
}

void Machine::resume(Thread& thread) {
  Block* block = thread.block;
  if (shown_ != block) memory.show(shown_, *block);
  shown_ = block;
  current = &thread;
  on_fiber_ = true;
  switch_fiber(scheduler_, thread.fiber, false);
  on_fiber_ = false;
  if (stopped_) return;
  if (!stack_is_sound(thread.fiber)) {
    misuse("stack", 0, "needs more than its stack: too many or too large local arrays");
    return;
  }
  if (thread.state == State::done && block->alive == 0) end_block(*block);
  if (idle_turns_ > kMostIdleTurns) {
    report_stuck("livelock: threads spin, and nothing else happens");
    stop();
  }
}

bool Machine::land_something() {
  for (Block& block : blocks_) {
    if (block.bulk.empty()) continue;
    if (shown_ != &block) memory.show(shown_, block);
    shown_ = &block;
    land(block, in_order() ? 0 : random(uint32_t(block.bulk.size())));
    return true;
  }
  return false;
}

void Machine::wait(const Waiting& waiting) {
  Thread& thread = *current;
  thread.state = State::waiting;
  thread.waiting = waiting;
  advanced();
  switch_fiber(thread.fiber, scheduler_, false);
  thread.waiting = Waiting{};
}

void Machine::give_way(bool spins) {
  Thread& thread = *current;
  if (spins) {
    idle_turns_++;
    spinning_.push_back(&thread);
  } else {
    // In front, since every style but the one that takes any looks for the next from behind.
    ready_.push_front(&thread);
  }
  switch_fiber(thread.fiber, scheduler_, false);
}

void Machine::maybe_preempt() {
  if (in_order() || --until_preempted_ != 0) return;
  until_preempted_ = 1 + random(64);
  give_way(false);
}

void Machine::wake(Thread& thread) {
  thread.state = State::ready;
  ready_.push_back(&thread);
  advanced();
}

void Machine::stop() {
  stopped_ = true;
  if (on_fiber_) switch_fiber(current->fiber, scheduler_, true);
}

uint3 position(Place what) {
  const Thread& thread = *machine.current;
  const uint32_t (&size)[3] =
      what == Place::block_size ? machine.request->block : machine.request->grid;
  if (what == Place::thread) return thread.place;
  if (what == Place::block) return thread.block->place;
  return {size[0], size[1], size[2]};
}

void* dynamic_shared() { return machine.current->block->shared.dynamic; }

void poll(uintptr_t pc) {
  machine.current->waiting = {Waiting::poll, pc};
  machine.give_way(true);
  machine.current->waiting = Waiting{};
}

void yield() { poll(SIM_CALLER); }

void trap() { misuse("trap", SIM_CALLER, "calls __trap"); }

}  // namespace sim
