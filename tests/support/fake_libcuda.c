// NVIDIA's driver as far as machine.py asks it, with the GPUs that the environment names:
// FAKE_DRIVER=13000 FAKE_GPUS="90:NVIDIA H200:150000000000:149000000000:232448;80:..." FAKE_FAIL=cuInit
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char* name) {
  const char* failing = getenv("FAKE_FAIL");
  return failing && !strcmp(failing, name) ? 999 : 0;
}

static int gpu(int device, int* architecture, char* name, size_t* total, size_t* available, int* shared) {
  const char* at = getenv("FAKE_GPUS");
  for (int i = 0; at && *at; i++) {
    if (i == device)
      return sscanf(at, "%d:%255[^:]:%zu:%zu:%d", architecture, name, total, available, shared) == 5;
    at = strchr(at, ';');
    if (at) at++;
  }
  return 0;
}

static int architecture;
static char name[256];
static size_t total, available;
static int shared;
static int retained, pushed;

int cuGetErrorName(int status, const char** text) {
  *text = status == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
  return 0;
}
int cuDriverGetVersion(int* version) {
  if (fails("cuDriverGetVersion")) return 7;
  *version = atoi(getenv("FAKE_DRIVER"));
  return 0;
}
int cuInit(unsigned flags) { return fails("cuInit"); }
int cuDeviceGetCount(int* count) {
  *count = 0;
  while (gpu(*count, &architecture, name, &total, &available, &shared)) ++*count;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char* to, int size, int device) {
  gpu(device, &architecture, name, &total, &available, &shared);
  strncpy(to, name, size);
  return 0;
}
int cuDeviceGetAttribute(int* value, int which, int device) {
  gpu(device, &architecture, name, &total, &available, &shared);
  *value = which == 75 ? architecture / 10 : which == 76 ? architecture % 10 : which == 97 ? shared : -1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  gpu(device, &architecture, name, &total, &available, &shared);
  *context = &retained;
  retained++;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) { pushed++; return context == &retained ? 0 : 1; }
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  if (!pushed) return 201;
  *free_bytes = available;
  *total_bytes = total;
  return fails("cuMemGetInfo");
}
int cuCtxPopCurrent_v2(void** context) { pushed--; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { retained--; return 0; }
int fake_contexts(void) { return retained; }
