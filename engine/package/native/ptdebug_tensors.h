// Tensors as handles of torch's stable C interface: those that are made, and those of a package's files.
#ifndef PTDEBUG_TENSORS_H
#define PTDEBUG_TENSORS_H
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "ptdebug_files.h"
#include "ptdebug_sizes.h"

namespace {
void must(AOTITorchError code, const char* what) {
  if (code) fail(std::string(what) + " failed in torch, which wrote why to stderr");
}

Sizes numbers(const std::string& text) {
  Sizes found;
  std::istringstream words(text);
  for (int64_t n; words >> n;) found.push_back(n);
  return found;
}

struct Handle {  // a tensor that is owned
  AtenTensorHandle tensor = nullptr;
  Handle() = default;
  Handle(Handle&& other) noexcept : tensor(other.take()) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(tensor, other.tensor);
    return *this;
  }
  ~Handle() {
    if (tensor) aoti_torch_delete_tensor_object(tensor);
  }
  AtenTensorHandle take() {
    AtenTensorHandle taken = tensor;
    tensor = nullptr;
    return taken;
  }
};

Handle another(AtenTensorHandle tensor) {
  Handle made;
  must(aoti_torch_new_tensor_handle(tensor, &made.tensor), "returning a result");
  return made;
}

// `gpu` is a number of torch's, -1 for the CPU.
Handle empty(const Sizes& size, const Sizes& stride, int32_t dtype, int32_t gpu = -1) {
  Handle made;
  const int32_t type = gpu < 0 ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda();
  must(aoti_torch_empty_strided(size.size(), size.data(), stride.data(), dtype, type, std::max(gpu, 0), &made.tensor),
       "allocating a tensor");
  return made;
}

// The number of the GPU that a tensor is on; -1 for the CPU, -2 for another device.
int32_t gpu_of(AtenTensorHandle tensor) {
  int32_t type, index;
  must(aoti_torch_get_device_type(tensor, &type), "reading a tensor");
  must(aoti_torch_get_device_index(tensor, &index), "reading a tensor");
  return type == aoti_torch_device_type_cpu() ? -1 : type == aoti_torch_device_type_cuda() ? index : -2;
}

struct Layout {
  Sizes size, stride;
};

Layout layout_of(AtenTensorHandle tensor) {
  int64_t rank, *size, *stride;
  must(aoti_torch_get_dim(tensor, &rank), "reading a tensor");
  must(aoti_torch_get_sizes(tensor, &size), "reading a tensor");
  must(aoti_torch_get_strides(tensor, &stride), "reading a tensor");
  return {Sizes(size, size + rank), Sizes(stride, stride + rank)};
}

Handle number_as_tensor(int64_t value) {
  Handle made = empty({}, {}, aoti_torch_dtype_int64());
  void* at;
  must(aoti_torch_get_data_ptr(made.tensor, &at), "returning a number");
  std::memcpy(at, &value, sizeof(int64_t));
  return made;
}

// The elements of a tensor from the first to the last.
int64_t span(const Layout& layout) {
  int64_t count = 1;
  for (size_t dim = 0; dim < layout.size.size(); dim++) {
    if (layout.size[dim] == 0) return 0;
    count += (layout.size[dim] - 1) * layout.stride[dim];
  }
  return count;
}

// A weight or constant of a package. `fields`: kind, name, dtype, file, begin, end, size, stride, number of its GPU.
Handle tensor_of(const File& file, const Strings& fields) {
  const auto [content, length] = file.member(fields.at(3));
  const size_t begin = std::stoull(fields.at(4)), end = std::stoull(fields.at(5));
  if (begin > end || end > length) file.damaged(fields[1] + " is not in it");
  const Layout layout = {numbers(fields.at(6)), numbers(fields.at(7))};
  const int32_t dtype = std::stoi(fields.at(2)), gpu = std::stoi(fields.at(8));
  Handle row = empty({span(layout)}, {1}, dtype), made;
  void* at;
  int64_t bytes;
  must(aoti_torch_get_storage_size(row.tensor, &bytes), "loading a weight");
  if (end - begin != static_cast<size_t>(bytes)) file.damaged(fields[1] + " has another size in it");
  must(aoti_torch_get_data_ptr(row.tensor, &at), "loading a weight");
  if (end > begin) std::memcpy(at, content + begin, end - begin);
  if (gpu >= 0) {
    Handle there = empty({span(layout)}, {1}, dtype, gpu);
    must(aoti_torch_copy_(there.tensor, row.tensor, 0), "loading a weight");
    row = std::move(there);
  }
  must(aoti_torch__reinterpret_tensor(row.tensor, layout.size.size(), layout.size.data(), layout.stride.data(), 0,
                                      &made.tensor), "loading a weight");
  return made;
}
}  // namespace
#endif
