// What packages for a GPU need: the driver of CUDA, which loads their machine code, and torch's functions for CUDA.
#ifndef PTDEBUG_GPU_H
#define PTDEBUG_GPU_H
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ptdebug_files.h"

namespace {
// A function of torch, also of its library for CUDA, which nothing may have loaded yet; null where it has none.
void* torch_function(const char* name) {
  if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
  static void* const libraries[] = {dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD),
                                    dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_GLOBAL)};
  for (void* library : libraries)
    if (void* found = library ? dlsym(library, name) : nullptr) return found;
  return nullptr;
}

class Driver {
 public:
  static const Driver& here() {
    static const Driver driver;
    return driver;
  }

  bool is_there() const { return library_; }

  void* find(const char* name) const {
    if (void* found = dlsym(library_, name)) return found;
    fail(std::string("the driver of NVIDIA has no ") + name);
  }

  // A call of one of its functions; what it refuses is an exception.
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const int code = reinterpret_cast<int (*)(Arguments...)>(find(name))(arguments...);
    if (!code) return;
    const char* why = nullptr;
    reinterpret_cast<int (*)(int, const char**)>(find("cuGetErrorString"))(code, &why);
    fail(std::string(name) + ": " + (why ? why : "an unknown error") + " (" + std::to_string(code) + ")");
  }

  int attribute(int which, int device) const {
    int value;
    call("cuDeviceGetAttribute", &value, which, device);
    return value;
  }

  // The context of a GPU for this thread, if it has none.
  void make_current(int32_t index) const {
    void* context = nullptr;
    int device;
    call("cuCtxGetCurrent", &context);
    if (context) return;
    call("cuDeviceGet", &device, index);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
  }

 private:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_LAZY)) {}
  void* library_;
};

// What a package says of its GPU, which is of one of the capabilities; `here`: that of this machine's, once it is known.
struct Gpu {
  int32_t index = -1;
  int cuda = 0, here = 0;
  std::string name;
  std::vector<int> capabilities;

  // Fails where this machine has no such one.
  void check(const std::string& path) {
    const auto shown = [](int version) { return std::to_string(version / 10) + "." + std::to_string(version % 10); };
    std::string what = path + " was compiled for a GPU (" + name + (name.empty() ? "" : ", ") + "compute capability ";
    for (size_t k = 0; k < capabilities.size(); k++) what += (k ? " or " : "") + shown(capabilities[k]);
    what += ")";
    const Driver& driver = Driver::here();
    if (!driver.is_there()) fail(what + ", and there is no driver of NVIDIA here");
    int version, count, device;
    driver.call("cuDriverGetVersion", &version);
    if (version / 1000 < cuda)
      fail(what + " with CUDA " + std::to_string(cuda) + ", and the driver here is for CUDA " + shown(version / 100) +
           ": it is too old");
    driver.call("cuInit", 0u);
    driver.call("cuDeviceGetCount", &count);
    if (index >= count)
      fail(what + ", cuda:" + std::to_string(index) + ", and this machine has " + std::to_string(count) + " GPUs");
    driver.call("cuDeviceGet", &device, static_cast<int>(index));
    here = 10 * driver.attribute(75, device) + driver.attribute(76, device);
    if (std::find(capabilities.begin(), capabilities.end(), here) == capabilities.end())
      fail(what + ", and the one here has " + shown(here) + ": export it there");
    if (!torch_function("aoti_torch_create_cuda_guard"))
      fail(what + ", and this torch is built without CUDA, or its libtorch_cuda was not found");
  }
};

// Makes a GPU the current one, and its context that of this thread; nothing where the index is -1.
class Current {
 public:
  explicit Current(int32_t index) {
    if (index < 0) return;
    using Create = int32_t (*)(int32_t, void**);
    if (reinterpret_cast<Create>(torch_function("aoti_torch_create_cuda_guard"))(index, &guard_))
      fail("torch can't make cuda:" + std::to_string(index) + " the current device");
    try {
      Driver::here().make_current(index);
    } catch (...) {
      drop();
      throw;
    }
  }
  ~Current() { drop(); }
  Current(const Current&) = delete;

 private:
  void drop() {
    if (guard_) reinterpret_cast<int32_t (*)(void*)>(torch_function("aoti_torch_delete_cuda_guard"))(guard_);
    guard_ = nullptr;
  }
  void* guard_ = nullptr;
};

// What the code of a graph launches: the table that it reads (engine/codegen/cpp_wrapper/gpu/text.py).
class Launches {
 public:
  // A launch: a compute capability; machine code, its function, its threads, its bytes of shared memory, twice.
  void add(const File& file, int32_t gpu, const std::vector<std::string>& fields) {
    start();
    for (size_t k = 2; k <= 6; k += 4) {
      const int shared = std::stoi(fields.at(k + 3));
      table_.push_back(reinterpret_cast<uint64_t>(function(file, gpu, fields.at(k), fields.at(k + 1), shared)));
      table_.push_back(std::stoull(fields.at(k + 2)));
      table_.push_back(shared);
    }
  }

  // The code reads its first two entries also where nothing is launched.
  const void* table() {
    start();
    return table_.data();
  }

 private:
  void start() {
    if (!table_.empty()) return;
    for (const char* name : {"cuLaunchKernel", "cuCtxGetCurrent"})
      table_.push_back(reinterpret_cast<uint64_t>(Driver::here().find(name)));
  }

  // It stays loaded, for the next package with the same code: kernels may run when a package is freed.
  static void* function(const File& file, int32_t gpu, const std::string& member, const std::string& name, int shared) {
    static std::mutex loading;
    static std::map<std::string, void*> loaded;
    const std::lock_guard<std::mutex> alone(loading);
    const auto [begin, size] = file.member(member);
    void*& found = loaded[member + " " + name + " " + std::to_string(gpu)];
    if (found) return found;
    const std::vector<char> code(begin, begin + size);  // aligned
    const Driver& driver = Driver::here();
    void* module = nullptr;
    driver.call("cuModuleLoadData", &module, static_cast<const void*>(code.data()));
    void* function = nullptr;
    driver.call("cuModuleGetFunction", &function, module, name.c_str());
    if (shared > 48 << 10) {
      driver.call("cuFuncSetCacheConfig", function, 1);  // prefers shared memory
      driver.call("cuFuncSetAttribute", function, 8, shared);  // at most so many bytes of it
    }
    return found = function;
  }

  std::vector<uint64_t> table_;
};
}  // namespace
#endif
