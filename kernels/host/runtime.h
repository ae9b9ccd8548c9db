// What the headers that kernels are compiled with ask of the runtime. The runtime is compiled
// apart from them, without the compiler's instrumentation, so nothing it does counts as an access.
#pragma once
#include <stddef.h>
#include <stdint.h>

// A wrapper that is not inlined would be the source line that every finding names.
#define SIM_INLINE inline __attribute__((always_inline))

struct uint3 {
  unsigned x, y, z;
};

namespace sim {

enum class Place { thread, block, block_size, grid_size };
enum class Scope { block, device };
enum class Order { relaxed, acquire, release, both };
enum class Shuffle { from, up, down, across };
enum class Vote { any, all, ballot, sync, match_any, match_all };
enum class Reduce { add, min_signed, min, max_signed, max, bit_and, bit_or, bit_xor };
enum class Gather { plain, count, all_of, any_of };

// `const` holds although threads take turns: each runs on a stack of its own, and for the thread
// that asks the answer never changes.
uint3 position(Place what) __attribute__((const));
void* dynamic_shared() __attribute__((const));

int block_barrier(Gather kind, int value, int line);
void named_barrier(unsigned id, unsigned threads, bool waits);

uint64_t shuffle(unsigned mask, Shuffle kind, uint64_t bits, int argument, int width);
unsigned vote(unsigned mask, Vote kind, uint64_t value);
unsigned reduce(unsigned mask, Reduce kind, unsigned value);
void ldmatrix(uint32_t* out, const void* row, int count, bool transposed);
void mma_m16n8k16(float* d, const uint32_t* a, const uint32_t* b);

void fence(Scope scope);
// One read-modify-write is a load, then a store: no other thread runs between the two.
uint64_t atomic_load(const void* address, size_t size, Order order, bool changes);
void atomic_store(void* address, size_t size, uint64_t bits, Order order, bool changes);
void yield();
void trap();

void copy_async(void* shared, const void* global, unsigned size, unsigned valid);
void copy_commit();
void copy_wait(unsigned groups_left, bool commits);

void mbarrier_init(uint64_t* barrier, unsigned count);
void mbarrier_fence();
void mbarrier_arrive(uint64_t* barrier, unsigned expected_bytes);
void mbarrier_wait(uint64_t* barrier, unsigned parity);
void bulk_copy(void* shared, const void* global, unsigned bytes, uint64_t* barrier);

struct Parameter {
  char kind;  // p pointer, f floating, i integer, b bool
  unsigned size;
};
struct Kernel {
  const char* name;
  const Parameter* parameters;
  unsigned count;
  void (*run)(void* const* arguments);
};
// True when the library was compiled with the checks; `anchor` is a thread-local of its own.
int add_kernel(const Kernel* kernel, bool checked, void* (*anchor)());

}  // namespace sim
