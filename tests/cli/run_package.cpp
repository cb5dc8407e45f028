#include <ptdebug_package.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <execinfo.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

static AtenTensorHandle copied(AtenTensorHandle tensor, int32_t type) {
  int64_t rank, *size, *stride;
  int32_t dtype;
  AtenTensorHandle copy;
  aoti_torch_get_dim(tensor, &rank);
  aoti_torch_get_sizes(tensor, &size);
  aoti_torch_get_strides(tensor, &stride);
  aoti_torch_get_dtype(tensor, &dtype);
  aoti_torch_empty_strided(rank, size, stride, dtype, type, 0, &copy);
  aoti_torch_copy_(copy, tensor, 0);
  aoti_torch_delete_tensor_object(tensor);
  return copy;
}

// Says where the program was when it got a signal that ends it; its calls are flushed one by one.
static void tell(int signal) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Reads calls from stdin: a line `ENTRY N`, then for each of N inputs a line `FILE DTYPE SIZE...`. In place of the file
// `&K` is the memory of input K, by columns; `@FILE` is put on the GPU; `=NAME` alone is a weight. Prints for each call the results, a line each, as
// float or int64, or the error.
int main(int, char** arguments) {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(signal, tell);
  PtdebugPackage* package = ptdebug_load(arguments[1]);
  if (!package) return std::cout << ptdebug_error() << "\n", 1;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream head(line);
    std::string name;
    int64_t count;
    head >> name >> count;
    std::vector<std::vector<char>> data(count);
    std::vector<AtenTensorHandle> inputs(count);
    for (int64_t k = 0; k < count; k++) {
      std::getline(std::cin, line);
      std::istringstream words(line);
      std::string file, dtype;
      words >> file >> dtype;
      if (file[0] == '=') {
        aoti_torch_new_tensor_handle(ptdebug_weight(package, file.c_str() + 1), &inputs[k]);
        continue;
      }
      const bool shared = file[0] == '&', on_gpu = file[0] == '@';
      if (on_gpu) file.erase(0, 1);
      std::vector<char>& memory = data[shared ? std::stoul(file.substr(1)) : k];
      std::vector<int64_t> size, stride;
      for (int64_t n; words >> n;) size.push_back(n);
      int64_t step = 1;
      stride.resize(size.size());
      for (size_t n = 0; n < size.size(); n++) {
        const size_t dim = shared ? n : size.size() - 1 - n;
        stride[dim] = step, step *= size[dim];
      }
      if (!shared) memory.assign(std::istreambuf_iterator<char>(std::ifstream(file, std::ios::binary).rdbuf()), {});
      const int32_t code = dtype == "int64"   ? aoti_torch_dtype_int64()
                           : dtype == "uint8" ? aoti_torch_dtype_bool()
                                              : aoti_torch_dtype_float32();
      aoti_torch_create_tensor_from_blob(memory.data(), size.size(), size.data(), stride.data(), 0, code,
                                         aoti_torch_device_type_cpu(), 0, &inputs[k]);
      if (on_gpu) inputs[k] = copied(inputs[k], aoti_torch_device_type_cuda());
    }
    PtdebugEntry* entry = ptdebug_entry(package, name.c_str());
    std::vector<AtenTensorHandle> outputs(entry ? ptdebug_outputs(entry) : 0);
    if (!entry || ptdebug_run(entry, inputs.data(), count, outputs.data(), outputs.size())) {
      std::cout << "error: " << ptdebug_error() << std::endl;
      outputs.clear();
    }
    for (AtenTensorHandle output : outputs) {
      output = copied(output, aoti_torch_device_type_cpu());
      int32_t dtype;
      int64_t elements;
      void* at;
      aoti_torch_get_dtype(output, &dtype);
      aoti_torch_get_numel(output, &elements);
      aoti_torch_get_data_ptr(output, &at);
      for (int64_t k = 0; k < elements; k++) {
        if (dtype == aoti_torch_dtype_int64()) std::printf("%ld ", static_cast<int64_t*>(at)[k]);
        else std::printf("%.9g ", static_cast<float*>(at)[k]);
      }
      std::printf("\n");
      std::fflush(stdout);
      aoti_torch_delete_tensor_object(output);
    }
    for (AtenTensorHandle input : inputs) aoti_torch_delete_tensor_object(input);
  }
  ptdebug_free(package);
}
