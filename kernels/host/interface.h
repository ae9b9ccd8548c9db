// The C entry of a compiled library: what a launch is given, and what can be asked afterwards.
// kernels/host/simulator.py mirrors these structs.
#pragma once
#include <stdint.h>

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

struct dspark_sim_buffer {
  const char* name;
  void* data;
  uint64_t bytes;
};

struct dspark_sim_request {
  const char* kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint64_t shared_bytes;
  void* const* arguments;                   // one address for each parameter, of the value to pass
  const struct dspark_sim_buffer* buffers;  // all the device memory that there is
  uint32_t buffer_count;
  uint32_t resident;  // blocks alive at once; 0 means the whole grid
  uint64_t seed;      // 0: in order
};

// 0 when nothing was found; else the number of findings. The report is valid until the next launch.
SIM_EXPORT int dspark_sim_launch(const struct dspark_sim_request* request);
SIM_EXPORT const char* dspark_sim_report(void);   // JSON: findings and traffic of the last launch
SIM_EXPORT const char* dspark_sim_kernels(void);  // JSON: what each kernel takes
