// One launch while it runs: its threads, warps and blocks, and who has the turn.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "../interface.h"
#include "../runtime.h"
#include "clock.h"
#include "fiber.h"
#include "memory.h"
#include "report.h"

// Who called: a runtime function that kernels call says so in its first line.
#define SIM_CALLER (reinterpret_cast<uintptr_t>(__builtin_return_address(0)))

namespace sim {

struct Block;
struct Thread;

struct Warp {
  Thread* lanes[32] = {};
  uint32_t alive = 0;
};

// A warp operation that a lane waits with until all lanes of its mask have come.
struct Post {
  void (*perform)(Warp& warp, uint32_t lanes) = nullptr;
  const char* name = "";
  uint32_t mask = 0;
  int kind = 0, argument = 0, width = 32;
  uint64_t bits = 0;    // what the lane brings, and then what it takes away
  void* out = nullptr;  // or more than fits there
  const void* in = nullptr;
  const void* more = nullptr;
};

struct Copy {
  char* to;
  const char* from;
  uint32_t size, valid;
  uintptr_t pc;
};

enum class State : uint8_t { ready, waiting, done };

// What a thread waits for, for the report of a deadlock.
struct Waiting {
  enum What { nothing, block, lanes, named, mbarrier, poll } what = nothing;
  uintptr_t pc = 0;
  const void* on = nullptr;  // the Barrier, or the address of the mbarrier
};

struct Thread {
  Fiber fiber;
  Block* block = nullptr;
  Warp* warp = nullptr;
  Name name;
  uint3 place{};
  uint32_t lane = 0;
  State state = State::ready;
  Waiting waiting;
  Post post;
  int nonzero = 0, values = 0;              // what the last barrier counted
  std::vector<Copy> open;                   // cp.async, not committed
  std::deque<std::vector<Copy>> committed;  // groups, oldest first
  // Own time is not in the clock, so that threads which met at a barrier can share one.
  Clock clock;
  uint32_t time = 1;
  Clock fenced[2], loaded[2];  // by Scope: what a later store hands on; what a later fence takes in
};

struct Barrier {
  uint32_t expected = 0, arrived = 0;
  std::vector<Thread*> waiting;
  Clock gathered;
  int line = 0;
  uintptr_t pc = 0;
  int nonzero = 0, values = 0;
};

struct Mbarrier {
  uint32_t count = 0, pending = 0;
  uint32_t phases = 1;  // the one under way, from 1; the first has parity 0
  int64_t bytes = 0;
  bool fenced = false;  // the copy engine knows of it
  Name engine;          // who copies for it; at the time of a phase, all of that phase
  Clock arrived, completed;
  std::vector<Thread*> waiting;
};

struct Bulk {
  Copy copy;
  uint64_t* barrier;
};

struct Block {
  uint32_t index = 0, slot = 0, alive = 0;
  uint3 place{};
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier barriers[16];
  std::unordered_map<uint64_t*, Mbarrier> mbarriers;
  std::vector<Bulk> bulk;  // under way
  Shared shared;
};

class Machine {
 public:
  const dspark_sim_request* request = nullptr;
  const Kernel* kernel = nullptr;
  bool checked = false;
  Report report;
  Memory memory;
  Thread* current = nullptr;
  uint32_t threads_in_block = 0;

  void run();
  // For the code of fibers: give the turn away, and return when it comes back.
  void wait(const Waiting& waiting);
  void give_way(bool spins);
  // A seeded schedule sometimes interrupts a thread where the next access may be another's.
  void maybe_preempt();
  void wake(Thread& thread);
  void advanced() { idle_turns_ = 0; }
  // Ends the launch after a finding that leaves nothing to go on with. Returns only when no
  // fiber runs.
  void stop();
  bool stopped() const { return stopped_; }
  uint32_t random(uint32_t below);
  bool in_order() const { return request->seed == 0; }

 private:
  enum class Style { in_order, any, latest, warp };
  void start_block(uint32_t slot, uint32_t index);
  void end_block(Block& block);
  Thread* pick();
  bool land_something();
  void resume(Thread& thread);
  void report_stuck(const char* what);
  static void thread_main();

  std::vector<Block> blocks_;
  std::vector<uint32_t> order_;
  uint32_t started_ = 0, running_ = 0;
  std::deque<Thread*> ready_;
  std::vector<Thread*> spinning_;
  Fiber scheduler_;
  uint64_t random_ = 0;
  Style style_ = Style::in_order;
  Block* shown_ = nullptr;  // whose static shared memory is in place
  Warp* last_warp_ = nullptr;
  uint64_t idle_turns_ = 0;
  uint32_t until_preempted_ = 0;
  bool stopped_ = false, on_fiber_ = false;
  char* stacks_ = nullptr;
  size_t stack_count_ = 0;
};

extern Machine machine;

uint3 unfold(uint32_t index, const uint32_t (&size)[3]);
std::string label(const Thread& thread);
std::string label(Name name);
// Everything `thread` has seen, itself included; afterwards its time has moved on.
Clock release(Thread& thread);
void acquire(Thread& thread, const Clock& clock);
// Reports a misuse of the current thread and ends the launch.
void misuse(const char* kind, uintptr_t pc, const std::string& text);

void leave_barriers(Block& block);
void leave_warp(Thread& thread);
void land(Block& block, size_t which);
// Also for volatile accesses: what an atomic load takes in, and what a store hands on.
void observe(const void* address, size_t size, Order order, uintptr_t pc);
void publish(const void* address, size_t size, Order order, bool changes, uintptr_t pc);
void poll(uintptr_t pc);
void forget_atomics();

}  // namespace sim
