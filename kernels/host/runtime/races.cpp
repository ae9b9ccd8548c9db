#include "races.h"

namespace sim {
namespace {

// Of very many unordered readers the first are remembered: a writer who races with one of the rest
// races with these too, unless it is ordered after just them.
constexpr uint32_t kMostRemembered = 2048;

bool conflict(const Access& a, const Access& b) {
  return (a.writes || b.writes) && !(a.strong && b.strong);
}

// Whoever races with `earlier` in future races with `later` as well.
bool covers(const Access& later, const Access& earlier) {
  return later.writes >= earlier.writes && later.strong <= earlier.strong;
}

bool ordered(const Access& earlier, const Access& later, const Clock& seen) {
  if (earlier.by == later.by && !later.engine) return true;
  return earlier.time <= seen.of(earlier.by);
}

}  // namespace

bool Histories::Step::operator==(const Step& other) const {
  return history == other.history && block == other.block && thread == other.thread &&
         time == other.time && access == other.access;
}

size_t Histories::Hash::operator()(const Step& step) const {
  uint64_t hash = (uint64_t(step.history) << 32 | step.time) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ hash >> 29 ^ (uint64_t(step.block) << 32 | step.thread)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ hash >> 32 ^ step.access) * 0x94d049bb133111ebu;
  return hash ^ hash >> 31;
}

uint32_t Histories::after(uint32_t history, const Access& access, const Clock& seen,
                          std::optional<Access>& race) {
  const Step step{history, access.by.block, access.by.thread, access.time,
                  access.pc << 2 | uint64_t(access.writes) << 1 | uint64_t(access.strong)};
  const auto known = steps_.find(step);
  if (known != steps_.end()) return known->second;
  const uint32_t next = take(history, access, seen, race);
  steps_.emplace(step, next);
  return next;
}

uint32_t Histories::take(uint32_t history, const Access& access, const Clock& seen,
                         std::optional<Access>& race) {
  bool drops = false;
  for (uint32_t at = history; at != kNothing; at = entries_[at].rest) {
    const Access& earlier = entries_[at].access;
    const bool before = ordered(earlier, access, seen);
    if (!before && conflict(earlier, access)) {
      race = earlier;
      return push(kNothing, access);
    }
    if (earlier.by == access.by && earlier.time == access.time && covers(earlier, access))
      return history;
    drops |= before && covers(access, earlier);
  }
  if (!drops) return entries_[history].length < kMostRemembered ? push(history, access) : history;
  std::vector<Access> kept;
  for (uint32_t at = history; at != kNothing; at = entries_[at].rest) {
    const Access& earlier = entries_[at].access;
    if (!(ordered(earlier, access, seen) && covers(access, earlier))) kept.push_back(earlier);
  }
  uint32_t next = kNothing;
  for (auto earlier = kept.rbegin(); earlier != kept.rend(); ++earlier) next = push(next, *earlier);
  return push(next, access);
}

uint32_t Histories::push(uint32_t rest, const Access& access) {
  const uint32_t length = rest == kNothing ? 1 : entries_[rest].length + 1;
  entries_.push_back({access, rest, length});
  return uint32_t(entries_.size() - 1);
}

void Histories::clear() {
  entries_.assign(1, Entry{});
  steps_.clear();
}

}  // namespace sim
