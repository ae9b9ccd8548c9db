// Vector clocks: what a thread has seen of all others, so that "happens before" is a comparison.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace sim {

// A thread of the launch: its block's place in the grid, and its own in the block. The places
// behind the last thread are the block's copy engines, one for each mbarrier.
struct Name {
  uint32_t block = 0, thread = 0;
  bool operator==(const Name& other) const {
    return block == other.block && thread == other.thread;
  }
};

class Clock {
 public:
  // The latest time of `name` that is known here; times start at 1, so 0 is "nothing".
  uint32_t of(Name name) const;
  void raise(Name name, uint32_t time);
  void join(const Clock& other);
  bool empty() const { return known_.empty(); }

 private:
  // Threads that met at a barrier know the same: they share the times, which are copied on writing.
  struct Known {
    uint32_t block;
    std::shared_ptr<std::vector<uint32_t>> times;
  };
  std::vector<uint32_t>& times_of(uint32_t block);  // for writing
  std::vector<Known> known_;                        // in order of block
};

}  // namespace sim
