// What a launch found, as JSON for the Python side.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sim {

// A place in the kernel's code, for simulator.py to turn into file and line.
std::string where(uintptr_t pc);
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
std::string quoted(const std::string& text);

class Report {
 public:
  void clear() { findings_.clear(); }
  // Says each thing once: `key` is what makes two findings the same one.
  void add(const char* kind, const std::string& text, const std::string& key);
  size_t size() const { return findings_.size(); }
  bool full() const { return findings_.size() >= 20; }
  std::string json() const;

 private:
  struct Finding {
    std::string kind, text, key;
  };
  std::vector<Finding> findings_;
};

}  // namespace sim
