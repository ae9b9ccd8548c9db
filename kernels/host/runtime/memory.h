// What memory there is, who may touch which byte of it, and how much of it was moved.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../interface.h"
#include "races.h"

namespace sim {

struct Thread;
struct Block;

// For each byte: its history, and in the top bit whether a copy to it is under way.
using Cells = std::vector<uint32_t>;

// A block's shared memory. The static part lies in one place for all blocks; `statics` is where a
// block's own content waits while another block runs.
struct Shared {
  std::vector<char> storage, statics;
  char* dynamic = nullptr;
  Cells dynamic_cells, static_cells;
  Histories histories;
};

struct Traffic {
  uint64_t requested = 0;  // bytes, each access by each thread
  uint64_t by_block = 0;   // 32-byte sectors, each once for each block
  uint64_t once = 0;       // 32-byte sectors, each once
};

struct Buffer {
  std::string name;
  char* data;
  size_t bytes;
  uint32_t* cells;
  std::vector<uint32_t> read_by, written_by;  // by sector: the last block, counted from 1
  Traffic reads, writes;
};

class Memory {
 public:
  // The thread-local storage of the library holds the static shared memory.
  void find_statics(void* anchor);
  void begin(const dspark_sim_request& request, bool checked);
  void end();
  void prepare(Block& block, size_t dynamic_bytes, bool checked);
  // Puts `next`'s static shared memory in place, and keeps that of `previous`.
  void show(Block* previous, Block& next);
  bool is_shared(const Block& block, const void* address, size_t size) const;

  // Checks an access of `size` bytes and takes it down. Ends the launch if there is no such memory.
  void touch(Thread& thread, const void* address, size_t size, const Access& access,
             const Clock& seen);
  void touch(Thread& thread, const void* address, size_t size, bool writes, bool strong,
             uintptr_t pc);
  // A copy to shared memory that may land at any time from now on, or has landed.
  void set_under_way(Block& block, const void* shared, size_t size, bool under_way);
  std::string describe(const Block& block, const void* address, size_t size) const;
  std::string json() const;

 private:
  // The cells of these bytes, or null; sets `*buffer` where they are in one.
  uint32_t* cells_of(Block& block, const void* address, size_t size, Buffer** buffer);
  void count(Buffer& buffer, size_t offset, size_t size, bool writes, uint32_t block);

  std::vector<Buffer> buffers_;  // in order of address
  Histories histories_;
  char* statics_ = nullptr;
  size_t static_bytes_ = 0;
  uintptr_t image_begin_ = 0, image_end_ = 0;
  Buffer* last_ = nullptr;
};

}  // namespace sim
