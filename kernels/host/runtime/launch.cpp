// The entry: checks the shape of a launch, runs it, and writes down what was found.
#include <cstring>

#include "machine.h"

namespace sim {
namespace {

constexpr uint32_t kMostThreads = 1024, kMostDepth = 64, kMostRows = 65535, kMostFibers = 1 << 17;
constexpr size_t kMostShared = 227 << 10;

std::vector<const Kernel*>& kernels() {
  static std::vector<const Kernel*> all;
  return all;
}

bool checked_build = false;
void* (*anchor_of)() = nullptr;
std::string report;

const char* wrong_shape(const dspark_sim_request& request) {
  const auto& [x, y, z] = request.block;
  const uint64_t threads = uint64_t(x) * y * z;
  const uint64_t blocks = uint64_t(request.grid[0]) * request.grid[1] * request.grid[2];
  if (threads == 0 || threads > kMostThreads || z > kMostDepth)
    return "no GPU has blocks of this size";
  if (blocks == 0 || request.grid[1] > kMostRows || request.grid[2] > kMostRows ||
      blocks >> 31 != 0)
    return "no GPU has grids of this size";
  // What is static is the compiler's to check: here one piece holds that of all kernels of a file.
  if (request.shared_bytes > kMostShared) return "no GPU has so much shared memory";
  const uint64_t resident =
      request.resident == 0 ? blocks : std::min<uint64_t>(blocks, request.resident);
  if (resident * threads > kMostFibers) return "too many threads at once for the simulator";
  return nullptr;
}

}  // namespace

int add_kernel(const Kernel* kernel, bool checked, void* (*anchor)()) {
  kernels().push_back(kernel);
  checked_build = checked;
  anchor_of = anchor;
  return 0;
}

}  // namespace sim

int dspark_sim_launch(const dspark_sim_request* request) {
  using namespace sim;
  machine.request = request;
  machine.checked = checked_build;
  machine.kernel = nullptr;
  machine.report.clear();
  for (const Kernel* kernel : kernels())
    if (strcmp(kernel->name, request->kernel) == 0) machine.kernel = kernel;
  if (anchor_of != nullptr) machine.memory.find_statics(anchor_of());
  if (machine.kernel == nullptr) {
    machine.report.add("launch", "there is no such kernel", "");
  } else if (const char* wrong = wrong_shape(*request)) {
    machine.report.add("launch", wrong, "");
  } else {
    forget_atomics();
    machine.memory.begin(*request, machine.checked);
    machine.run();
    machine.memory.end();
  }
  report = "{\"findings\":" + machine.report.json() + ",\"traffic\":" + machine.memory.json() + '}';
  machine.request = nullptr;
  return int(machine.report.size());
}

const char* dspark_sim_report() { return sim::report.c_str(); }

const char* dspark_sim_kernels() {
  static std::string json;
  json = "{";
  for (const sim::Kernel* kernel : sim::kernels()) {
    if (json.size() > 1) json += ',';
    json += sim::quoted(kernel->name) + ":[";
    for (unsigned i = 0; i < kernel->count; i++)
      json += sim::format("%s[\"%c\",%u]", i == 0 ? "" : ",", kernel->parameters[i].kind,
                          kernel->parameters[i].size);
    json += ']';
  }
  json += '}';
  return json.c_str();
}
