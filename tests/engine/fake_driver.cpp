// Stands in for the driver of CUDA (libcuda.so.1): it has one GPU, of the version and compute capability that the
// environment says. Every function of its machine code is a kernel out[k] = 2 * in[k] + 1 over rows of four elements,
// and tells how it was launched.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {
int setting(const char* name, int other) {
  const char* found = std::getenv(name);
  return found ? std::atoi(found) : other;
}
struct Function {
  bool general;
  std::string name;
};
}  // namespace

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = setting("FAKE_VERSION", 12040), 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGet(int* device, int) { return *device = 0, 0; }
int cuDeviceGetAttribute(int* value, int which, int) {
  const int capability = setting("FAKE_CAPABILITY", 90);
  return *value = which == 75 ? capability / 10 : capability % 10, 0;
}
int cuCtxGetCurrent(void** context) { return *context = reinterpret_cast<void*>(1), 0; }
int cuGetErrorString(int, const char** text) { return *text = "device kernel image is invalid", 0; }
int cuModuleLoadData(void** module, const void* code) {
  if (std::getenv("FAKE_REFUSES")) return 200;
  const std::string start(static_cast<const char*>(code), 60);  // has which addresses it was compiled for
  return *module = new bool(start.find("[False") != std::string::npos), 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return *function = new Function{*static_cast<bool*>(module), name}, 0;
}
int cuLaunchKernel(Function* function, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                   void*, void** parameters, void**) {
  const float* in = *static_cast<float**>(parameters[0]);
  float* out = *static_cast<float**>(parameters[1]);
  const int64_t rows = function->general ? *static_cast<int64_t*>(parameters[2]) : *static_cast<int32_t*>(parameters[2]);
  for (int64_t k = 0; k < 4 * rows; k++) out[k] = 2 * in[k] + 1;
  std::printf("%s %u %u\n", function->general ? "general" : "usual", x, threads);
  return parameters[3] && *static_cast<void**>(parameters[3]) ? 1 : 0;  // a null pointer follows the arguments
}
}
