#include "memory.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "machine.h"

namespace sim {
namespace {

constexpr uint32_t kUnderWay = 1u << 31;
constexpr size_t kSector = 32;
constexpr size_t kApart = 1024;  // between what two blocks hold, so that none reaches the other's

bool inside(const void* address, size_t size, const void* begin, size_t bytes) {
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(begin);
  return offset >= 0 && size <= bytes && size_t(offset) <= bytes - size;
}

}  // namespace

void Memory::find_statics(void* anchor) {
  struct Search {
    Memory* memory;
    char* anchor;
  } search{this, static_cast<char*>(anchor)};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto* search = static_cast<Search*>(data);
        auto* storage = static_cast<char*>(library->dlpi_tls_data);
        for (int i = 0; i < library->dlpi_phnum && storage != nullptr; i++) {
          const auto& part = library->dlpi_phdr[i];
          if (part.p_type != PT_TLS || !inside(search->anchor, 1, storage, part.p_memsz)) continue;
          search->memory->statics_ = storage;
          search->memory->static_bytes_ = part.p_memsz;
          for (int j = 0; j < library->dlpi_phnum; j++) {
            const auto& loaded = library->dlpi_phdr[j];
            if (loaded.p_type != PT_LOAD) continue;
            const uintptr_t begin = library->dlpi_addr + loaded.p_vaddr;
            if (search->memory->image_begin_ == 0) search->memory->image_begin_ = begin;
            search->memory->image_end_ = begin + loaded.p_memsz;
          }
          return 1;
        }
        return 0;
      },
      &search);
}

void Memory::begin(const dspark_sim_request& request, bool checked) {
  histories_.clear();
  buffers_.clear();
  last_ = nullptr;
  for (uint32_t i = 0; i < request.buffer_count; i++) {
    const dspark_sim_buffer& given = request.buffers[i];
    Buffer buffer{given.name, static_cast<char*>(given.data), given.bytes, nullptr, {}, {}, {}, {}};
    if (checked && given.bytes != 0) {
      // Zero pages come only when touched, so a large buffer costs what is used of it.
      void* cells = mmap(nullptr, given.bytes * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (cells == MAP_FAILED) cells = nullptr;
      buffer.cells = static_cast<uint32_t*>(cells);
      buffer.read_by.resize(given.bytes / kSector + 2);
      buffer.written_by.resize(given.bytes / kSector + 2);
    }
    buffers_.push_back(std::move(buffer));
  }
  std::sort(buffers_.begin(), buffers_.end(),
            [](const Buffer& a, const Buffer& b) { return a.data < b.data; });
}

void Memory::end() {
  for (Buffer& buffer : buffers_)
    if (buffer.cells != nullptr) munmap(buffer.cells, buffer.bytes * sizeof(uint32_t));
  for (Buffer& buffer : buffers_) buffer.cells = nullptr;
  last_ = nullptr;
}

void Memory::prepare(Block& block, size_t dynamic_bytes, bool checked) {
  Shared& shared = block.shared;
  shared.storage.assign(dynamic_bytes + 2 * kApart, '\xff');
  shared.statics.assign(static_bytes_, '\xff');
  const auto base = reinterpret_cast<uintptr_t>(shared.storage.data()) + kApart;
  shared.dynamic = reinterpret_cast<char*>(base & ~uintptr_t(127));
  if (!checked) return;
  shared.dynamic_cells.assign(dynamic_bytes, Histories::kNothing);
  shared.static_cells.assign(static_bytes_, Histories::kNothing);
}

void Memory::show(Block* previous, Block& next) {
  if (static_bytes_ == 0) return;
  if (previous != nullptr) memcpy(previous->shared.statics.data(), statics_, static_bytes_);
  memcpy(statics_, next.shared.statics.data(), static_bytes_);
}

bool Memory::is_shared(const Block& block, const void* address, size_t size) const {
  return inside(address, size, block.shared.dynamic, machine.request->shared_bytes) ||
         inside(address, size, statics_, static_bytes_);
}

uint32_t* Memory::cells_of(Block& block, const void* address, size_t size, Buffer** buffer) {
  Shared& shared = block.shared;
  const auto* at = static_cast<const char*>(address);
  if (inside(at, size, shared.dynamic, shared.dynamic_cells.size()))
    return &shared.dynamic_cells[size_t(at - shared.dynamic)];
  if (inside(at, size, statics_, shared.static_cells.size()))
    return &shared.static_cells[size_t(at - statics_)];
  if (last_ == nullptr || !inside(at, size, last_->data, last_->bytes)) {
    auto after = std::upper_bound(buffers_.begin(), buffers_.end(), at,
                                  [](const char* a, const Buffer& b) { return a < b.data; });
    if (after == buffers_.begin()) return nullptr;
    Buffer& found = *--after;
    if (!inside(at, size, found.data, found.bytes)) return nullptr;
    last_ = &found;
  }
  *buffer = last_;
  return last_->cells + (at - last_->data);
}

void Memory::count(Buffer& buffer, size_t offset, size_t size, bool writes, uint32_t block) {
  Traffic& traffic = writes ? buffer.writes : buffer.reads;
  std::vector<uint32_t>& stamps = writes ? buffer.written_by : buffer.read_by;
  traffic.requested += size;
  const size_t shift = reinterpret_cast<uintptr_t>(buffer.data) % kSector;
  for (size_t sector = (offset + shift) / kSector; sector <= (offset + shift + size - 1) / kSector;
       sector++) {
    if (stamps[sector] == block + 1) continue;
    traffic.by_block++;
    traffic.once += stamps[sector] == 0;
    stamps[sector] = block + 1;
  }
}

void Memory::touch(Thread& thread, const void* address, size_t size, const Access& access,
                   const Clock& seen) {
  if (!machine.checked || size == 0) return;
  Buffer* buffer = nullptr;
  uint32_t* cells = cells_of(*thread.block, address, size, &buffer);
  if (cells == nullptr) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    // A table of constants is part of the library itself.
    if (!access.writes && at >= image_begin_ && at + size <= image_end_) return;
    misuse("out-of-bounds", access.pc,
           format("%s %zu bytes at %s", access.writes ? "writes" : "reads", size,
                  describe(*thread.block, address, size).c_str()));
    return;
  }
  if (buffer != nullptr)
    count(*buffer, size_t(static_cast<const char*>(address) - buffer->data), size, access.writes,
          thread.name.block);
  // A block's own memory has histories of its own, which end with it.
  Histories& histories = buffer != nullptr ? histories_ : thread.block->shared.histories;
  uint32_t same = ~0u, next = 0;
  for (size_t i = 0; i < size; i++) {
    if (cells[i] != same) {
      same = cells[i];
      if (same & kUnderWay) {
        misuse("unwaited-copy", access.pc,
               format("%s %zu bytes at %s, to which a copy is still under way",
                      access.writes ? "writes" : "reads", size,
                      describe(*thread.block, address, size).c_str()));
        return;
      }
      std::optional<Access> race;
      next = histories.after(same, access, seen, race);
      if (race) {
        const std::string other = race->engine            ? "the copy engine"
                                  : race->by == access.by ? "the same thread"
                                                          : "";
        machine.report.add(
            "race",
            format("%s %s %s at %s, and nothing orders that after the %s by %s at %s",
                   access.engine ? "a bulk copy" : label(thread).c_str(),
                   access.writes ? "writes" : "reads",
                   describe(*thread.block, static_cast<const char*>(address) + i, 1).c_str(),
                   where(access.pc).c_str(), race->writes ? "write" : "read",
                   other.empty() ? label(race->by).c_str() : other.c_str(),
                   where(race->pc).c_str()),
            where(access.pc) + where(race->pc));
        if (machine.report.full()) machine.stop();
      }
    }
    cells[i] = next;
  }
}

void Memory::touch(Thread& thread, const void* address, size_t size, bool writes, bool strong,
                   uintptr_t pc) {
  touch(thread, address, size, Access{thread.name, thread.time, pc, writes, strong, false},
        thread.clock);
}

void Memory::set_under_way(Block& block, const void* shared, size_t size, bool under_way) {
  if (!machine.checked) return;
  const auto* at = static_cast<const char*>(shared);
  const bool dynamic = inside(at, size, block.shared.dynamic, block.shared.dynamic_cells.size());
  uint32_t* cells = dynamic ? &block.shared.dynamic_cells[size_t(at - block.shared.dynamic)]
                            : &block.shared.static_cells[size_t(at - statics_)];
  for (size_t i = 0; i < size; i++)
    cells[i] = under_way ? cells[i] | kUnderWay : cells[i] & ~kUnderWay;
}

std::string Memory::describe(const Block& block, const void* address, size_t size) const {
  const auto* at = static_cast<const char*>(address);
  std::string name;
  const char* begin = nullptr;
  size_t bytes = 0, distance = 1 << 20;
  const auto consider = [&](const std::string& what, const char* data, size_t length) {
    const size_t away = at < data            ? size_t(data - at)
                        : at < data + length ? 0
                                             : size_t(at - data) - length;
    if (away >= distance) return;
    name = what;
    begin = data;
    bytes = length;
    distance = away;
  };
  consider("dynamic shared memory", block.shared.dynamic, machine.request->shared_bytes);
  consider("static shared memory", statics_, static_bytes_);
  for (const Buffer& buffer : buffers_)
    consider('`' + buffer.name + '`', buffer.data, buffer.bytes);
  if (name.empty()) return format("address %p, where nothing is", address);
  const std::string place = format("byte %td of %s", at - begin, name.c_str());
  return inside(at, size, begin, bytes) ? place : place + format(", which has %zu", bytes);
}

std::string Memory::json() const {
  std::string json = "{";
  for (const Buffer& buffer : buffers_) {
    if (json.size() > 1) json += ',';
    json += quoted(buffer.name) + ':';
    const Traffic* kinds[] = {&buffer.reads, &buffer.writes};
    for (int i = 0; i < 2; i++)
      json += format("%c{\"requested\":%llu,\"by_block\":%llu,\"once\":%llu}", i == 0 ? '[' : ',',
                     static_cast<unsigned long long>(kinds[i]->requested),
                     static_cast<unsigned long long>(kinds[i]->by_block * kSector),
                     static_cast<unsigned long long>(kinds[i]->once * kSector));
    json += ']';
  }
  return json + '}';
}

}  // namespace sim
