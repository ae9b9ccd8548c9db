#include "clock.h"

#include <algorithm>

namespace sim {

uint32_t Clock::of(Name name) const {
  for (const Known& known : known_)
    if (known.block == name.block)
      return name.thread < known.times->size() ? (*known.times)[name.thread] : 0;
  return 0;
}

std::vector<uint32_t>& Clock::times_of(uint32_t block) {
  const auto at =
      std::lower_bound(known_.begin(), known_.end(), block,
                       [](const Known& known, uint32_t sought) { return known.block < sought; });
  if (at == known_.end() || at->block != block)
    return *known_.insert(at, {block, std::make_shared<std::vector<uint32_t>>()})->times;
  if (at->times.use_count() > 1) at->times = std::make_shared<std::vector<uint32_t>>(*at->times);
  return *at->times;
}

void Clock::raise(Name name, uint32_t time) {
  std::vector<uint32_t>& times = times_of(name.block);
  if (times.size() <= name.thread) times.resize(name.thread + 1);
  times[name.thread] = std::max(times[name.thread], time);
}

void Clock::join(const Clock& other) {
  if (known_.empty()) known_ = other.known_;
  size_t mine = 0;
  for (const Known& theirs : other.known_) {
    while (mine < known_.size() && known_[mine].block < theirs.block) mine++;
    if (mine == known_.size() || known_[mine].block != theirs.block) {
      known_.insert(known_.begin() + std::ptrdiff_t(mine), theirs);
      continue;
    }
    if (known_[mine].times == theirs.times) continue;
    std::vector<uint32_t>& times = times_of(theirs.block);
    if (times.size() < theirs.times->size()) times.resize(theirs.times->size());
    for (size_t i = 0; i < theirs.times->size(); i++)
      times[i] = std::max(times[i], (*theirs.times)[i]);
  }
}

}  // namespace sim
