// What the compiler calls in a checked build. `-fsanitize=thread` announces each access to memory
// before it happens, and `-fsanitize=alignment,bounds,...` what the language leaves undefined; both
// usually call a library of the compiler's, and here call this file instead.
#include "machine.h"

namespace sim {
namespace {

void on_access(const void* address, size_t size, bool writes, uintptr_t pc) {
  Thread& thread = *machine.current;
  const auto offset = static_cast<const char*>(address) - thread.fiber.stack;
  if (offset >= 0 && size_t(offset) < kStackBytes) return;  // a variable of the thread's own
  machine.memory.touch(thread, address, size, writes, false, pc);
  machine.maybe_preempt();
}

void on_volatile(const void* address, size_t size, bool writes, uintptr_t pc) {
  const auto offset = static_cast<const char*>(address) - machine.current->fiber.stack;
  if (offset >= 0 && size_t(offset) < kStackBytes) return;
  if (writes) return publish(address, size, Order::relaxed, false, pc);
  poll(pc);
  observe(address, size, Order::relaxed, pc);
}

// How the compiler describes a place in the source and a type.
struct Source {
  const char* file;
  uint32_t line, column;
};
struct Type {
  uint16_t kind, info;
  char name[1];
};
struct Alignment {
  Source place;
  const Type* type;
  uint8_t log_alignment, check;
};
struct Index {
  Source place;
  const Type *array, *index;
};

void undefined(const char* kind, const Source& place, const std::string& text) {
  const std::string file = place.file == nullptr ? "?" : place.file;
  misuse(kind, 0, text + format(" at %s:%u", file.substr(file.rfind('/') + 1).c_str(), place.line));
}

}  // namespace
}  // namespace sim

#define SIM_HOOK extern "C" __attribute__((visibility("hidden"))) void
#define SIM_SIZE(size)                                                                             \
  SIM_HOOK __tsan_read##size(void* at) { sim::on_access(at, size, false, SIM_CALLER); }            \
  SIM_HOOK __tsan_write##size(void* at) { sim::on_access(at, size, true, SIM_CALLER); }            \
  SIM_HOOK __tsan_unaligned_read##size(void* at) { sim::on_access(at, size, false, SIM_CALLER); }  \
  SIM_HOOK __tsan_unaligned_write##size(void* at) { sim::on_access(at, size, true, SIM_CALLER); }  \
  SIM_HOOK __tsan_volatile_read##size(void* at) { sim::on_volatile(at, size, false, SIM_CALLER); } \
  SIM_HOOK __tsan_volatile_write##size(void* at) { sim::on_volatile(at, size, true, SIM_CALLER); }
SIM_SIZE(1)
SIM_SIZE(2)
SIM_SIZE(4)
SIM_SIZE(8)
SIM_SIZE(16)
SIM_HOOK __tsan_read_range(void* at, size_t size) { sim::on_access(at, size, false, SIM_CALLER); }
SIM_HOOK __tsan_write_range(void* at, size_t size) { sim::on_access(at, size, true, SIM_CALLER); }
SIM_HOOK __tsan_init() {}

SIM_HOOK __ubsan_handle_type_mismatch_v1(sim::Alignment* data, uintptr_t address) {
  sim::undefined(
      "misaligned", data->place,
      sim::format("uses a %s at %s, which is not aligned to %u bytes", data->type->name,
                  sim::machine.memory
                      .describe(*sim::machine.current->block, reinterpret_cast<void*>(address), 1)
                      .c_str(),
                  1u << data->log_alignment));
}
SIM_HOOK __ubsan_handle_out_of_bounds(sim::Index* data, uintptr_t index) {
  sim::undefined("out-of-bounds", data->place,
                 sim::format("uses element %td of a %s", ptrdiff_t(index), data->array->name));
}
#define SIM_OVERFLOW(name, text)                                            \
  SIM_HOOK __ubsan_handle_##name(sim::Source* data, uintptr_t, uintptr_t) { \
    sim::undefined("undefined", *data, text);                               \
  }
SIM_OVERFLOW(add_overflow, "has a sum that does not fit its signed type")
SIM_OVERFLOW(sub_overflow, "has a difference that does not fit its signed type")
SIM_OVERFLOW(mul_overflow, "has a product that does not fit its signed type")
SIM_OVERFLOW(divrem_overflow, "divides by zero, or the least integer by -1")
SIM_OVERFLOW(shift_out_of_bounds, "shifts by more bits than there are, or a negative number")
SIM_HOOK __ubsan_handle_negate_overflow(sim::Source* data, uintptr_t) {
  sim::undefined("undefined", *data, "negates the least integer");
}
