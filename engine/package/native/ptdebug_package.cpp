// Loads and runs packages of `ptdebug export` without Python: see ptdebug_package.h. What is in a package for this is
// told by ptdebug's engine/package/cpp_interface.py.
#include "ptdebug_package.h"

#include "ptdebug_files.h"
#include "ptdebug_graphs.h"
#include "ptdebug_sizes.h"
#include "ptdebug_tensors.h"

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {
thread_local std::string last_error;

using Libraries = std::map<std::string, std::unique_ptr<Library>>;
thread_local const Libraries* own_kernels;  // of the package that is being loaded, by function

void* find_function(const char* name) {
  const auto own = own_kernels->find(name);
  if (own != own_kernels->end()) return own->second->find(name);
  return torch_function(name);
}

struct Input {
  std::string path, dtype_name, shown;
  int32_t dtype, gpu;  // the number of its GPU, -1 for the CPU
  bool written, copied, read;
  std::vector<Strings> size, stride;
};

struct Symbol {
  std::string title;
  int64_t input, dim;  // -1: the number that is the input
  int64_t low, high;
};

struct Place {
  std::string kind;
  int64_t number;
  AtenTensorHandle tensor;
  std::string name;  // of a weight
  bool written;
};

struct Memory {  // of an argument or weight
  std::string name;
  bool written;
  const char *begin, *end;
};

std::string list(const Sizes& values) {
  std::string text = "[";
  for (int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

class NoGradients {
 public:
  NoGradients() : before_(aoti_torch_grad_mode_is_enabled()) { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGradients() { aoti_torch_grad_mode_set_enabled(before_); }

 private:
  bool before_;
};
}  // namespace

// ---- an entry point ----
struct PtdebugEntry {
  std::string name, refused;
  std::vector<Input> inputs;
  std::vector<Symbol> symbols;
  std::vector<std::pair<Strings, std::string>> conditions;
  std::vector<Place> arguments, results;
  std::vector<Memory> weights;
  bool writes = false;
  int32_t gpu = -1;  // where it runs
  Code code;
  std::unique_ptr<Flow> flow;  // in the place of the code where the graph has control flow
  std::vector<Flow*> open;     // while it is read: the flow whose lines follow, in those that it is a part of
  std::vector<Code*> codes;    // all code

  void note_weights() {
    for (const Input& each : inputs) writes = writes || each.written;
    for (const Place& each : arguments) {
      if (each.kind != "weight") continue;
      weights.push_back(memory("the weight " + each.name, each.written, each.tensor, layout_of(each.tensor)));
      writes = writes || each.written;
    }
  }

  void run(const AtenTensorHandle* given, int64_t count, AtenTensorHandle* outputs, int64_t wanted) {
    if (count != static_cast<int64_t>(inputs.size()))
      fail(name + " takes " + std::to_string(inputs.size()) + " tensors, not " + std::to_string(count));
    if (wanted != static_cast<int64_t>(results.size()))
      fail(name + " returns " + std::to_string(results.size()) + " tensors, not " + std::to_string(wanted));
    const NoGradients without;
    const Current current(gpu);
    std::vector<Handle> copies(count);
    std::vector<AtenTensorHandle> leaves(given, given + count);
    check(leaves, copies);
    Sizes computed;
    std::vector<Handle> out;
    if (flow) run_flow(leaves, out);
    else run_code(leaves, computed, out);
    std::vector<Handle> found;
    for (const Place& each : results) found.push_back(result(each, given, out, computed));
    for (int64_t k = 0; k < wanted; k++) outputs[k] = found[k].take();
  }

 private:
  void run_code(const std::vector<AtenTensorHandle>& leaves, Sizes& computed, std::vector<Handle>& out) const {
    std::vector<AtenTensorHandle> in;
    Sizes varying;
    for (const Place& each : arguments) {
      if (each.kind == "number") varying.push_back(number(leaves[each.number]));
      else in.push_back(each.kind == "leaf" ? leaves[each.number] : each.tensor);
    }
    code.run(name, in, varying, computed, out);
  }

  void run_flow(const std::vector<AtenTensorHandle>& leaves, std::vector<Handle>& out) const {
    Values values(arguments.size());
    Given given;
    for (size_t k = 0; k < values.size(); k++) {
      const Place& each = arguments[k];
      if (each.kind == "number") values[k].number = number(leaves[each.number]);
      else values[k].tensor = another(each.kind == "leaf" ? leaves[each.number] : each.tensor);
      given.push_back(&values[k]);
    }
    for (Value& each : flow->results(given)) out.push_back(std::move(each.tensor));
  }

  void check(std::vector<AtenTensorHandle>& leaves, std::vector<Handle>& copies) const {
    std::vector<Layout> layouts;
    for (size_t k = 0; k < inputs.size(); k++) layouts.push_back(kind(inputs[k], leaves[k]));
    Sizes values;
    for (const Symbol& symbol : symbols)
      values.push_back(in_range(symbol, symbol.dim < 0 ? number(leaves[symbol.input])
                                                       : layouts[symbol.input].size[symbol.dim]));
    for (const auto& [tokens, shown] : conditions)
      if (!evaluated(tokens, values)) fail("it was compiled for " + shown + ", which is not so for " + told(values));
    for (size_t k = 0; k < inputs.size(); k++)
      if (inputs[k].read) lay_out(inputs[k], layouts[k], values, leaves[k], copies[k]);
    apart(leaves, layouts);
    for (size_t k = 0; k < inputs.size(); k++)
      if (copies[k].tensor) leaves[k] = copies[k].tensor;
  }

  Layout kind(const Input& input, AtenTensorHandle tensor) const {
    if (!tensor) fail(input.path + " has to be a tensor, not null");
    int32_t dtype, layout;
    must(aoti_torch_get_dtype(tensor, &dtype), "reading a tensor");
    must(aoti_torch_get_layout(tensor, &layout), "reading a tensor");
    if (dtype != input.dtype || gpu_of(tensor) != input.gpu || layout != aoti_torch_layout_strided())
      fail(input.path + " has to be a strided " + input.dtype_name + " tensor on " +
           (input.gpu < 0 ? "cpu" : "cuda:" + std::to_string(input.gpu)));
    Layout found = layout_of(tensor);
    if (input.read && found.size.size() != input.size.size())
      fail(input.path + " has to have " + std::to_string(input.size.size()) + " dimensions " + input.shown + ", not " +
           list(found.size));
    return found;
  }

  int64_t in_range(const Symbol& symbol, int64_t value) const {
    if (value >= symbol.low && value <= symbol.high) return value;
    const std::string low = std::to_string(symbol.low), high = std::to_string(symbol.high);
    const std::string range = symbol.low == INT64_MIN    ? high + " or less"
                              : symbol.high == INT64_MAX ? low + " or more"
                                                         : low + " to " + high;
    const std::string& path = inputs[symbol.input].path;
    const std::string place = "dimension " + std::to_string(symbol.dim) + " of " + path + " (" + symbol.title + ")";
    fail((symbol.dim < 0 ? path : place) + " has to be " + range + ", not " + std::to_string(value));
  }

  static int64_t number(AtenTensorHandle tensor) {
    int64_t value;
    must(aoti_torch_item_int64(tensor, &value), "reading a number");
    return value;
  }

  std::string told(const Sizes& values) const {
    std::string text;
    for (size_t k = 0; k < symbols.size(); k++)
      text += (k ? ", " : "") + symbols[k].title + " = " + std::to_string(values[k]);
    return text;
  }

  // Makes a copy if the tensor is not in the layout for which the code was generated.
  void lay_out(const Input& input, const Layout& found, const Sizes& values, AtenTensorHandle tensor,
               Handle& copy) const {
    Sizes size, stride;
    for (const Strings& each : input.size) size.push_back(evaluated(each, values));
    for (const Strings& each : input.stride) stride.push_back(evaluated(each, values));
    bool same = !input.copied;
    for (size_t dim = 0; dim < size.size(); dim++) {
      if (size[dim] != found.size[dim])
        fail("dimension " + std::to_string(dim) + " of " + input.path + " has to be " + std::to_string(size[dim]) +
             ", not " + std::to_string(found.size[dim]));
      same = same && (size[dim] == 1 || stride[dim] == found.stride[dim]);
    }
    if (same) return;
    if (input.written)
      fail(input.path + " is written, so it has to have the strides " + list(stride) + ", not " + list(found.stride));
    copy = empty(size, stride, input.dtype, input.gpu);
    must(aoti_torch_copy_(copy.tensor, tensor, 0), "copying an input");
  }

  // What is written must not share memory with another input, as it was given: eager would read the new values.
  void apart(const std::vector<AtenTensorHandle>& leaves, const std::vector<Layout>& layouts) const {
    if (!writes) return;
    std::vector<Memory> found;
    for (size_t k = 0; k < inputs.size(); k++) {
      if (!inputs[k].read) continue;
      const Memory here = memory(inputs[k].path, inputs[k].written, leaves[k], layouts[k]);
      for (const Memory& other : found) apart(here, other);
      for (const Memory& other : weights) apart(here, other);
      found.push_back(here);
    }
  }

  static void apart(const Memory& one, const Memory& other) {
    const Memory& written = one.written ? one : other;
    const Memory& shared = one.written ? other : one;
    if (written.written && one.begin < other.end && other.begin < one.end)
      fail(written.name + " is written, and shares memory with " + shared.name);
  }

  static Memory memory(const std::string& name, bool written, AtenTensorHandle tensor, const Layout& layout) {
    void* at;
    int64_t storage, elements, count = 1;
    must(aoti_torch_get_data_ptr(tensor, &at), "reading a tensor");
    must(aoti_torch_get_storage_size(tensor, &storage), "reading a tensor");
    must(aoti_torch_get_storage_numel(tensor, &elements), "reading a tensor");
    const int64_t width = elements ? storage / elements : 0;
    for (size_t dim = 0; dim < layout.size.size(); dim++) {
      if (layout.size[dim] == 0) return {name, written, nullptr, nullptr};
      count += (layout.size[dim] - 1) * layout.stride[dim];
    }
    return {name, written, static_cast<char*>(at), static_cast<char*>(at) + count * width};
  }

  Handle result(const Place& place, const AtenTensorHandle* given, std::vector<Handle>& out, const Sizes& sizes) const {
    if (place.kind == "size") return number_as_tensor(sizes[place.number]);
    const AtenTensorHandle source = place.kind == "made"   ? out[place.number].tensor
                                    : place.kind == "leaf" ? given[place.number]
                                                           : place.tensor;
    return another(source);
  }
};

// ---- a package ----
struct PtdebugPackage {
  File file;
  std::map<std::string, Handle> weights, constants;
  Libraries own;
  Gpu gpu;
  std::vector<std::unique_ptr<PtdebugEntry>> entries;

  explicit PtdebugPackage(const char* path) : file(path) {
    if (file.has("manifest.json") && !file.has("cpp.txt"))
      fail(std::string(path) + " has no cpp.txt: it is of an earlier version of ptdebug, or damaged; export it again");
    const auto [begin, size] = file.member("cpp.txt");
    std::istringstream text(std::string(begin, size));
    for (std::string line; std::getline(text, line);) {
      const Strings fields = split(line, '\t');
      if (fields[0] == "entry") {
        entries.push_back(std::make_unique<PtdebugEntry>());
        entries.back()->name = fields.at(1), entries.back()->gpu = gpu.index;
      } else if (entries.empty() || fields[0] == "refused") {
        read(fields, path);
      } else {
        read(fields, *entries.back());
      }
    }
    for (const auto& entry : entries)
      if (entry->refused.empty()) connect(*entry);
  }

 private:
  void read(const Strings& fields, const std::string& path) {
    if (fields[0] == "format" && fields.at(1) != "ptdebug-cpp/3") {
      fail(path + " has the format " + fields[1] + ", and this loader reads ptdebug-cpp/3");
    } else if (fields[0] == "torch") {
      if (std::stoull(fields.at(1)) != aoti_torch_abi_version())
        fail(path + " was compiled for torch " + fields.at(2) + ", and this is another: export it again");
    } else if (fields[0] == "cpu") {
      fits(fields, path);
    } else if (fields[0] == "gpu") {
      if (gpu.index >= 0) fail(path + " was compiled for several GPUs: it runs from Python only");
      gpu.index = std::stoi(fields.at(1)), gpu.name = fields.at(2), gpu.cuda = std::stoi(fields.at(3));
      for (size_t k = 4; k < fields.size(); k++) gpu.capabilities.push_back(std::stoi(fields[k]));
      gpu.check(path);
    } else if (fields[0] == "weight" || fields[0] == "constant") {
      (fields[0] == "weight" ? weights : constants)[fields.at(1)] = tensor_of(file, fields);
    } else if (fields[0] == "own") {
      own[fields.at(1)] = std::make_unique<Library>(fields.at(1), file.member(fields.at(2)));
    } else if (fields[0] == "refused") {
      entries.push_back(std::make_unique<PtdebugEntry>());
      entries.back()->name = fields.at(1);
      entries.back()->refused = fields.at(2);
    }
  }

  static void fits(const Strings& fields, const std::string& path) {
    std::ifstream about("/proc/cpuinfo");
    std::set<std::string> flags;
    for (std::string line; flags.empty() && std::getline(about, line);) {
      if (line.compare(0, 5, "flags") && line.compare(0, 8, "Features")) continue;
      std::istringstream words(line);
      for (std::string word; words >> word;) flags.insert(word);
    }
    std::string lacking;
    for (size_t k = 1; k < fields.size(); k++)
      if (!fields[k].empty() && !flags.count(fields[k])) lacking += (lacking.empty() ? "" : ", ") + fields[k];
    if (!lacking.empty())
      fail(path + " was compiled for a CPU with " + lacking + ", which this one lacks: export it on one like this");
  }

  AtenTensorHandle held(const std::map<std::string, Handle>& tensors, const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) file.damaged("it has no tensor " + name);
    return found->second.tensor;
  }

  Place place(const Strings& fields) const {
    const std::string& kind = fields.at(1);
    if (kind == "weight")
      return {kind, 0, held(weights, fields.at(2)), fields[2], fields.size() > 3 && fields[3] == "1"};
    if (kind == "constant") return {kind, 0, held(constants, fields.at(2)), "", false};
    return {kind, std::stoll(fields.at(2)), nullptr, "", false};
  }

  void read(const Strings& fields, PtdebugEntry& entry) const {
    const std::string& what = fields[0];
    if (what == "bounds") {
      Code& code = entry.codes.empty() ? entry.code : *entry.codes.back();
      code.first_bound = std::stoll(fields.at(1));
      code.bounds = Strings(fields.begin() + 2, fields.end());
    } else if (what == "input") {
      const bool read = fields.size() > 7;
      entry.inputs.push_back({fields.at(1), fields.at(3), read ? fields.at(9) : "", std::stoi(fields.at(2)),
                              std::stoi(fields.at(6)), fields.at(4) == "1", fields.at(5) == "1", read,
                              read ? expressions(fields.at(7)) : std::vector<Strings>(),
                              read ? expressions(fields.at(8)) : std::vector<Strings>()});
    } else if (what == "symbol") {
      entry.symbols.push_back({fields.at(1), std::stoll(fields.at(2)), std::stoll(fields.at(3)),
                               fields.at(4).empty() ? INT64_MIN : std::stoll(fields.at(4)),
                               fields.at(5).empty() ? INT64_MAX : std::stoll(fields.at(5))});
    } else if (what == "condition") {
      entry.conditions.emplace_back(split(fields.at(1), ' '), fields.at(2));
    } else if (what == "argument" || what == "result") {
      (what == "argument" ? entry.arguments : entry.results).push_back(place(fields));
    } else if (what == "count") {
      Code& code = entry.codes.empty() ? entry.code : *entry.codes.back();
      (fields.at(1) == "made" ? code.made : code.sizes) = std::stoll(fields.at(2));
    } else if (what == "launch") {
      (entry.codes.empty() ? entry.code : *entry.codes.back()).launched.push_back(fields);
    } else {
      read_graph(fields, entry);
    }
  }

  // The lines of a flow: its graphs, each code or a flow of its own, and its steps.
  void read_graph(const Strings& fields, PtdebugEntry& entry) const {
    const std::string& what = fields[0];
    if (what == "flow") {
      auto made = std::make_unique<Flow>();
      made->values = std::stoull(fields.at(1));
      made->returned = numbers(fields.at(2));
      Flow* const flow = made.get();
      if (entry.open.empty()) entry.flow = std::move(made);
      else entry.open.back()->graphs.push_back(std::move(made));
      entry.open.push_back(flow);
      return;
    }
    if (entry.open.empty()) return;
    if (what == "code") {
      auto made = std::make_unique<Code>();
      made->file = fields.at(1), made->kinds = fields.at(2);
      entry.codes.push_back(made.get());
      entry.open.back()->graphs.push_back(std::move(made));
    } else if (what == "held") {
      entry.codes.back()->held.push_back(held(constants, fields.at(1)));
    } else if (what == "gives") {
      entry.codes.back()->gives.emplace_back(fields.at(1), std::stoll(fields.at(2)));
    } else if (what == "step") {
      entry.open.back()->steps.push_back({fields.at(1), numbers(fields.at(2)), numbers(fields.at(3)),
                                          numbers(fields.at(4)), numbers(fields.at(5)), std::stoll(fields.at(6)),
                                          std::stoll(fields.at(7))});
    } else if (what == "end") {
      entry.open.pop_back();
    }
  }

  void connect(PtdebugEntry& entry) const {
    entry.note_weights();
    if (!entry.flow) entry.code.file = entry.name;
    connect(entry.flow ? entry.codes : std::vector<Code*>{&entry.code});
  }

  void connect(const std::vector<Code*>& codes) const {
    own_kernels = &own;
    for (Code* code : codes) {
      code->library = std::make_unique<Library>(code->file, file.member("kernels/" + code->file + ".so"));
      using Connect = const char* (*)(void* (*)(const char*));
      const auto connected = reinterpret_cast<Connect>(code->library->find("ptdebug_connect"));
      code->call = reinterpret_cast<decltype(code->call)>(code->library->find("ptdebug_call"));
      if (!connected || !code->call) file.damaged("kernels/" + code->file + ".so has no function to call");
      if (const char* missing = connected(find_function)) fail(std::string("this torch has no ") + missing);
      connect_launches(*code);
    }
  }

  void connect_launches(Code& code) const {
    const auto take = reinterpret_cast<void (*)(const void*)>(code.library->find("ptdebug_launches"));
    if (!take && code.launched.empty()) return;  // it runs on the CPU
    if (!take) file.damaged("kernels/" + code.file + ".so takes no launches");
    const Current current(gpu.index);
    for (const Strings& fields : code.launched)
      if (gpu.index < 0 || std::stoi(fields.at(1)) == gpu.here) code.launches.add(file, gpu.index, fields);
    take(code.launches.table());
  }
};

// ---- the interface ----
template <typename Result, typename Body>
static Result guarded(Result failed, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

extern "C" {
const char* ptdebug_error(void) { return last_error.c_str(); }

PtdebugPackage* ptdebug_load(const char* path) {
  return guarded<PtdebugPackage*>(nullptr, [&] { return new PtdebugPackage(path); });
}

void ptdebug_free(PtdebugPackage* package) { delete package; }

PtdebugEntry* ptdebug_entry(PtdebugPackage* package, const char* name) {
  return guarded<PtdebugEntry*>(nullptr, [&] {
    std::string names;
    for (const auto& entry : package->entries) {
      names += (names.empty() ? "" : ", ") + entry->name;
      if (name && entry->name != name) continue;
      if (!entry->refused.empty()) fail(entry->name + " runs from Python only: " + entry->refused);
      return entry.get();
    }
    fail(std::string("no entry point ") + (name ? name : "") + ": there is " + names);
  });
}

int64_t ptdebug_inputs(const PtdebugEntry* entry) { return entry->inputs.size(); }

int64_t ptdebug_outputs(const PtdebugEntry* entry) { return entry->results.size(); }

const char* ptdebug_input(const PtdebugEntry* entry, int64_t position) {
  static thread_local std::string text;
  if (position < 0 || position >= ptdebug_inputs(entry)) return nullptr;
  const Input& input = entry->inputs[position];
  text = input.path + ": " + input.dtype_name + " " + (input.read ? input.shown : "any size");
  return text.c_str();
}

int ptdebug_run(PtdebugEntry* entry, const AtenTensorHandle* inputs, int64_t input_count, AtenTensorHandle* outputs,
                int64_t output_count) {
  return guarded<int>(1, [&] {
    entry->run(inputs, input_count, outputs, output_count);
    return 0;
  });
}

AtenTensorHandle ptdebug_weight(PtdebugPackage* package, const char* name) {
  return guarded<AtenTensorHandle>(nullptr, [&] {
    const auto found = package->weights.find(name);
    if (found == package->weights.end()) fail(std::string("no weight ") + name);
    return found->second.tensor;
  });
}
}
