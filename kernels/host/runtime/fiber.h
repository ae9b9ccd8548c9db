// A stack of its own for each CUDA thread, and the switch between two of them.
#pragma once
#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace sim {

constexpr size_t kStackBytes = 128 << 10;

struct Fiber {
  char* stack = nullptr;  // its lowest byte; the scheduler, which runs on the caller's, has none
  void* stack_pointer = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's, while this fiber does not run
#if !defined(__x86_64__)
  ucontext_t context;
#endif
};

// Makes `fiber` begin in `main`, which must not return, at the first switch to it.
void prepare(Fiber& fiber, void (*main)());
// Returns when something switches back to `from`; never, if `from` is `last`-ly left.
void switch_fiber(Fiber& from, Fiber& to, bool last);
// What a fiber does first.
void begin_fiber();
// Whether the lowest words of the stack are as `prepare` left them.
bool stack_is_sound(const Fiber& fiber);

}  // namespace sim
