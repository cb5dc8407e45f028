// Runs a package from C++ without Python. The program and the package are made so:
//
//   ptdebug export examples/export_classifier.py:model --dynamic input:0=batch --cpp native -o model.ptd
//   TORCH=$(python -c "import torch; print(torch.__path__[0])")
//   g++ -std=c++17 -Inative -I$TORCH/include examples/cpp/classify.cpp native/ptdebug_package.cpp -o classify
//       -L$TORCH/lib -Wl,-rpath,$TORCH/lib -Wl,--no-as-needed -ltorch_cpu -lc10 -ldl
//   ./classify model.ptd 5
#include <ptdebug_package.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** arguments) {
  PtdebugPackage* package = ptdebug_load(count > 1 ? arguments[1] : "model.ptd");
  PtdebugEntry* entry = package ? ptdebug_entry(package, nullptr) : nullptr;
  if (!entry) return std::fprintf(stderr, "%s\n", ptdebug_error()), 1;

  const int64_t batch = count > 2 ? std::atoll(arguments[2]) : 4;
  const int64_t size[] = {batch, 3, 32, 32}, stride[] = {3 * 32 * 32, 32 * 32, 32, 1};
  std::vector<float> pixels(batch * stride[0]);
  for (size_t k = 0; k < pixels.size(); k++) pixels[k] = static_cast<float>(k % 251) / 250;

  AtenTensorHandle images, scores;
  aoti_torch_create_tensor_from_blob(pixels.data(), 4, size, stride, 0, aoti_torch_dtype_float32(),
                                     aoti_torch_device_type_cpu(), 0, &images);
  if (ptdebug_run(entry, &images, 1, &scores, 1)) return std::fprintf(stderr, "%s\n", ptdebug_error()), 1;

  void* values;
  aoti_torch_get_data_ptr(scores, &values);
  for (int64_t row = 0; row < batch; row++) {
    const float* score = static_cast<float*>(values) + 10 * row;
    int best = 0;
    for (int k = 1; k < 10; k++)
      if (score[k] > score[best]) best = k;
    std::printf("%d %.9g\n", best, score[best]);
  }
  aoti_torch_delete_tensor_object(images);
  aoti_torch_delete_tensor_object(scores);
  ptdebug_free(package);
}
