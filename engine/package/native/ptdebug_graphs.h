// The graphs of a package: code in shared libraries, and flows, which call others as torch.cond and while_loop say.
// What a flow is, ptdebug's engine/graph_cache/flow.py tells, and how Python runs it.
#ifndef PTDEBUG_GRAPHS_H
#define PTDEBUG_GRAPHS_H
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ptdebug_files.h"
#include "ptdebug_gpu.h"
#include "ptdebug_sizes.h"
#include "ptdebug_tensors.h"

namespace {
struct Value {  // a tensor, or a number
  Handle tensor;
  int64_t number = 0;
};
using Given = std::vector<const Value*>;
using Values = std::vector<Value>;

struct Graph {
  virtual ~Graph() = default;
  virtual Values results(const Given& given) const = 0;
};

// ---- code ----
struct Code : Graph {
  std::string file, kinds;  // of inputs: t, a tensor, n, a number, -, not read
  Strings bounds;
  int64_t first_bound = 0;  // the code of the first
  int64_t made = 0, sizes = 0;
  std::vector<AtenTensorHandle> held;
  std::vector<std::pair<std::string, int64_t>> gives;  // of each result its kind, and its number among those
  std::unique_ptr<Library> library;
  std::vector<Strings> launched;  // the lines of its launches on a GPU
  Launches launches;
  int64_t (*call)(const AtenTensorHandle*, const int64_t*, int64_t*, AtenTensorHandle*) = nullptr;

  void run(const std::string& name, const std::vector<AtenTensorHandle>& in, const Sizes& varying, Sizes& computed,
           std::vector<Handle>& out) const {
    computed.resize(sizes + 1);
    out = std::vector<Handle>(made);
    std::vector<AtenTensorHandle> raw(made + 1);
    const int64_t code = call(in.data(), varying.data(), computed.data(), raw.data());
    for (int64_t k = 0; k < made; k++) out[k].tensor = raw[k];
    if (code) fail(why(name, code));
  }

  Values results(const Given& given) const override {
    std::vector<AtenTensorHandle> in;
    Sizes varying, computed;
    for (size_t k = 0; k < kinds.size(); k++) {
      if (kinds[k] == 't') in.push_back(given.at(k)->tensor.tensor);
      if (kinds[k] == 'n') varying.push_back(given.at(k)->number);
    }
    in.insert(in.end(), held.begin(), held.end());
    std::vector<Handle> out;
    run(file.substr(0, file.rfind('-')), in, varying, computed, out);
    Values found(gives.size());
    for (size_t k = 0; k < gives.size(); k++) {
      const auto& [kind, number] = gives[k];
      if (kind == "made") found[k].tensor = another(out.at(number).tensor);
      if (kind == "input") found[k].tensor = another(given.at(number)->tensor.tensor);
      if (kind == "size") {  // a number for other graphs, a tensor for the caller
        found[k].number = computed.at(number);
        found[k].tensor = number_as_tensor(found[k].number);
      }
    }
    return found;
  }

 private:
  std::string why(const std::string& name, int64_t code) const {
    const int64_t index = std::abs(code) - first_bound;
    if (code == 1 || index < 0 || index >= static_cast<int64_t>(bounds.size()))
      return name + ": an operation of torch failed, which wrote why to stderr, memory ran out, a GPU refused a launch, or a number exceeds 64 bits";
    return name + ": index out of range in `" + bounds[index] + "`";
  }
};

// ---- flows ----
struct Step {
  std::string kind;
  Sizes graphs, inputs, places, last;
  int64_t carried, sliced;
};

bool holds(const Value& predicate) {
  bool value;
  must(aoti_torch_item_bool(predicate.tensor.tensor, &value), "reading a predicate");
  return value;
}

// Operators give no tensor that they were given: those become copies.
Values of_its_own(Values results, const Given& given) {
  for (Value& result : results) {
    void *at, *other;
    must(aoti_torch_get_data_ptr(result.tensor.tensor, &at), "reading a result");
    for (const Value* each : given) {
      if (!each->tensor.tensor) continue;
      must(aoti_torch_get_data_ptr(each->tensor.tensor, &other), "reading a result");
      if (at != other || !at) continue;
      const Layout layout = layout_of(result.tensor.tensor);
      int32_t dtype;
      must(aoti_torch_get_dtype(result.tensor.tensor, &dtype), "reading a result");
      Handle copy = empty(layout.size, layout.stride, dtype, gpu_of(result.tensor.tensor));
      must(aoti_torch_copy_(copy.tensor, result.tensor.tensor, 0), "copying a result");
      result.tensor = std::move(copy);
      break;
    }
  }
  return results;
}

// The row of a tensor; it shares its memory.
Handle row_of(AtenTensorHandle tensor, const Layout& layout, int64_t row) {
  const Sizes size(layout.size.begin() + 1, layout.size.end()), stride(layout.stride.begin() + 1, layout.stride.end());
  Handle made;
  must(aoti_torch__reinterpret_tensor(tensor, size.size(), size.data(), stride.data(), row * layout.stride.at(0),
                                      &made.tensor), "reading a row");
  return made;
}

Handle stack_of(AtenTensorHandle first, int64_t count) {
  Sizes size = layout_of(first).size;
  size.insert(size.begin(), count);
  Sizes stride(size.size());
  int64_t step = 1;
  for (size_t dim = size.size(); dim-- > 0; step *= std::max<int64_t>(size[dim], 1)) stride[dim] = step;
  int32_t dtype;
  must(aoti_torch_get_dtype(first, &dtype), "reading a tensor");
  return empty(size, stride, dtype, gpu_of(first));
}

struct Flow : Graph {
  size_t values = 0;
  Sizes returned;
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<Step> steps;

  Values results(const Given& given) const override {
    Values made(values);
    Given now(given);
    now.resize(values);
    for (const Step& step : steps) {
      Given in;
      for (int64_t k : step.inputs) in.push_back(now.at(k));
      Values found = done(step, in);
      for (size_t k = 0; k < step.places.size(); k++) {
        if (step.places[k] < 0) continue;
        made.at(step.places[k]) = std::move(found.at(k));
        now[step.places[k]] = &made[step.places[k]];
      }
      for (int64_t k : step.last) made.at(k) = Value();
    }
    Values found(returned.size());
    for (size_t k = 0; k < returned.size(); k++)
      if (now.at(returned[k])->tensor.tensor) found[k].tensor = another(now[returned[k]]->tensor.tensor);
    return found;
  }

 private:
  const Graph& graph(const Step& step, size_t k) const { return *graphs.at(step.graphs.at(k)); }

  Values done(const Step& step, const Given& in) const {
    if (step.kind == "graph") return graph(step, 0).results(in);
    if (step.kind == "cond") {
      const Given operands(in.begin() + 1, in.end());
      return of_its_own(graph(step, holds(*in.at(0)) ? 0 : 1).results(operands), operands);
    }
    if (step.kind == "scan" || step.kind == "map_impl") return scanned(step, in);
    if (step.kind != "while_loop") fail("the package has an operator that is unknown here: " + step.kind);
    Values carried;
    Given now(in);
    while (holds(graph(step, 0).results(now).at(0))) {
      Values next = graph(step, 1).results(now);
      carried = std::move(next);
      for (int64_t k = 0; k < step.carried; k++) now[k] = &carried.at(k);
    }
    if (carried.empty())
      for (int64_t k = 0; k < step.carried; k++) {
        carried.emplace_back();
        carried.back().tensor = another(in[k]->tensor.tensor);
      }
    return of_its_own(std::move(carried), in);
  }

  Values scanned(const Step& step, const Given& in) const {
    const size_t first = step.carried, end = first + step.sliced;
    std::vector<Layout> layouts;
    for (size_t k = first; k < end; k++) layouts.push_back(layout_of(in.at(k)->tensor.tensor));
    const int64_t count = layouts.at(0).size.at(0);
    if (count == 0) fail("a tensor without rows is given to " + step.kind);
    Values carried, stacks, rows(step.sliced);
    Given now(in);
    for (int64_t row = 0; row < count; row++) {
      for (size_t k = first; k < end; k++) {
        rows[k - first].tensor = row_of(in[k]->tensor.tensor, layouts[k - first], row);
        now[k] = &rows[k - first];
      }
      Values found = graph(step, 0).results(now);
      for (size_t k = first; k < found.size(); k++) {
        if (row == 0) stacks.emplace_back(), stacks.back().tensor = stack_of(found[k].tensor.tensor, count);
        const AtenTensorHandle stack = stacks.at(k - first).tensor.tensor;
        const Handle place = row_of(stack, layout_of(stack), row);
        must(aoti_torch_copy_(place.tensor, found[k].tensor.tensor, 0), "stacking a result");
      }
      found.resize(first);
      carried = std::move(found);
      for (size_t k = 0; k < first; k++) now[k] = &carried[k];
    }
    Values all = of_its_own(std::move(carried), in);
    for (Value& stack : stacks) all.push_back(std::move(stack));
    return all;
  }
};
}  // namespace
#endif
