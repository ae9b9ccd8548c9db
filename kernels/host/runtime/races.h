// Which accesses to a byte are not yet ordered before everything that may still come.
#pragma once
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "clock.h"

namespace sim {

struct Access {
  Name by;
  uint32_t time = 0;
  uint64_t pc = 0;
  bool writes = false;
  bool strong = false;  // atomic or volatile: two of these never race
  bool engine = false;  // by the copy engine, whose copies have no order among themselves
};

// A byte's history is a number, and equal histories have equal numbers, so the work of one access
// is done once for all bytes that were used alike: the elements of an array mostly are.
class Histories {
 public:
  static constexpr uint32_t kNothing = 0;
  // The history after `access` by somebody who has seen `seen`. Sets `race` to an earlier access
  // that nothing orders before this one; only the first time that this happens.
  uint32_t after(uint32_t history, const Access& access, const Clock& seen,
                 std::optional<Access>& race);
  void clear();

 private:
  struct Entry {  // a list: this access, then those of `rest`
    Access access;
    uint32_t rest;
    uint32_t length;
  };
  struct Step {
    uint32_t history, block, thread, time;
    uint64_t access;
    bool operator==(const Step& other) const;
  };
  struct Hash {
    size_t operator()(const Step& step) const;
  };
  uint32_t take(uint32_t history, const Access& access, const Clock& seen,
                std::optional<Access>& race);
  uint32_t push(uint32_t rest, const Access& access);

  std::vector<Entry> entries_{Entry{}};
  std::unordered_map<Step, uint32_t, Hash> steps_;
};

}  // namespace sim
