#include "fiber.h"

#include <cstdint>
#include <cstring>

// AddressSanitizer wants to know which stack is in use. It is there, or these are null.
#define SIM_WEAK __attribute__((weak))
extern "C" {
SIM_WEAK void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
SIM_WEAK void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* size);
SIM_WEAK void __asan_unpoison_memory_region(const volatile void* address, size_t size);
}

namespace sim {
namespace {

constexpr uint64_t kCanary = 0x5afe57acc5afe57a;

const void* scheduler_stack = nullptr;
size_t scheduler_stack_bytes = 0;

bool sanitized() { return __sanitizer_start_switch_fiber != nullptr; }

}  // namespace

#if defined(__x86_64__)
// The System V ABI lets a call destroy all registers but these seven.
extern "C" void sim_swap_stacks(void** save, void* load) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden sim_swap_stacks
.type sim_swap_stacks, @function
sim_swap_stacks:
  push %rbx
  push %rbp
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  ret
.size sim_swap_stacks, . - sim_swap_stacks
)");
#endif

void prepare(Fiber& fiber, void (*main)()) {
  // The kernel that was here last may have been abandoned with its variables still fenced in.
  if (sanitized()) __asan_unpoison_memory_region(fiber.stack, kStackBytes);
  memcpy(fiber.stack, &kCanary, sizeof kCanary);
  fiber.fake_stack = nullptr;
#if defined(__x86_64__)
  auto** top = reinterpret_cast<void**>(fiber.stack + kStackBytes);
  *--top = nullptr;  // where `main` would return to; it also aligns the stack as a call does
  *--top = reinterpret_cast<void*>(main);
  for (int saved = 0; saved < 6; saved++) *--top = nullptr;
  fiber.stack_pointer = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, main, 0);
#endif
}

void switch_fiber(Fiber& from, Fiber& to, bool last) {
  if (sanitized()) {
    const void* bottom = to.stack ? to.stack : scheduler_stack;
    const size_t size = to.stack ? kStackBytes : scheduler_stack_bytes;
    __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, bottom, size);
  }
#if defined(__x86_64__)
  sim_swap_stacks(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.context, &to.context);
#endif
  if (sanitized()) __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

void begin_fiber() {
  // Fibers are only ever started by the scheduler, so the stack that was left is its own.
  if (sanitized())
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
}

bool stack_is_sound(const Fiber& fiber) {
  return memcmp(fiber.stack, &kCanary, sizeof kCanary) == 0;
}

}  // namespace sim
