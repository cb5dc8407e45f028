"""The C++ text that wrappers for a GPU share."""
from __future__ import annotations

from collections.abc import Mapping

from ....toolchain.cpp_build import NO_KERNELS
from ...cpp.entry import DECLARATIONS
from ...cpp.prelude import TYPES
from ..entry import EXPORTED
from ..load import RAISED

FUNCTIONS = ("aoti_torch_get_current_cuda_stream", "aoti_torch_get_current_device_index")
"""The functions of torch that only these wrappers call, on CUDA."""

HEAD = f"""\
{NO_KERNELS} Of torch it uses the functions of its stable C interface, by address; kernels are
// launched by the driver, with what each is on this device in a table.
{TYPES}
{DECLARATIONS}"""

LAUNCHES = """\
typedef int32 (*Launch)(void* function, uint32 x, uint32 y, uint32 z, uint32 threads, uint32 threads_y,
                        uint32 threads_z, uint32 shared, void* stream, void** parameters, void** extra);
struct Kernel { void* function; uint64 threads, shared; };  // no function: Python launches it
struct Launched { Kernel usual, general; };  // for aligned addresses and 32-bit sizes; for all others
struct Table { Launch launch; int32 (*current)(void** context); Launched kernels[]; };
struct Context { const Table* table; PyObject* steps; bool ready; void* lock; void* stream; };
static void* const nothing = nullptr;
static const int64 REFUSED = 1L << 32;  // no status of a kernel
static const Kernel& kernel_of(const Context& context, int64 which, bool general) {
  const Launched& found = context.table->kernels[which];
  return general ? found.general : found.usual;
}
static bool launch(const Context& context, int64 which, bool general, int64 x, int64 y, void** parameters) {
  const Kernel& kernel = kernel_of(context, which, general);
  return !x || !y || !context.table->launch(
    kernel.function, x, y, 1, kernel.threads, 1, 1, kernel.shared, context.stream, parameters, nullptr);
}
// Whether this thread has the context of a device: torch's launcher gives it one. A thread of autograd may have none.
static bool is_ready(const Context& context) {
  void* current = nullptr;
  return !context.table->current || (!context.table->current(&current) && current);
}
static bool is_there(const Context& context, int64 first, int64 count, bool general) {
  if (!context.ready) return false;
  for (int64 k = 0; k < count; k++)
    if (!kernel_of(context, first + k, general).function) return false;
  return true;
}
// A kernel that Python launches, given addresses and sizes: its status; negative where that raised.
static int64 kernel_by_python(Context& context, int64 step, const int64* values, int64 count) {
  if (!context.steps) return -1;  // in a program without Python
  PyEval_RestoreThread(context.lock);
  PyObject* arguments[count + 1];
  for (int64 k = 0; k < count; k++) arguments[k] = PyLong_FromLong(values[k]);
  PyObject* result = PyObject_Vectorcall(PyTuple_GetItem(context.steps, step), arguments, count, nullptr);
  for (int64 k = 0; k < count; k++) Py_DecRef(arguments[k]);
  const int64 status = result ? PyLong_AsLong(result) : -1;
  if (result) Py_DecRef(result);
  context.lock = PyEval_SaveThread();
  return status;
}
// A kernel of one launch and fixed sizes, given the addresses of its arguments: its status.
static int64 kernel_by_driver(
  Context& context, int64 step, int64 which, int64 x, int64 y, void** parameters, int64 count
) {
  uint64 low = 0;
  for (int64 k = 0; k < count; k++) low |= *(uint64*)parameters[k];
  const bool general = low & 15;
  if (is_there(context, which, 1, general)) return launch(context, which, general, x, y, parameters) ? 0 : REFUSED;
  int64 values[count + 1];
  for (int64 k = 0; k < count; k++) values[k] = *(int64*)parameters[k];
  return kernel_by_python(context, step, values, count);
}
// An ATen call by Python, given tensors and sizes, which returns a tuple of tensors.
static bool call_by_python(
  Context& context, int64 step, const Tensor* given, int64 count, const int64* sizes, int64 further, Owned* made,
  int64 results
) {
  if (!context.steps) return false;
  PyEval_RestoreThread(context.lock);
  PyObject* arguments[count + further + 1];
  bool good = true;
  for (int64 k = 0; k < count; k++) {
    Owned copy;
    arguments[k] = aoti_torch_new_tensor_handle(given[k], &copy.tensor) ? nullptr : wrap(copy.tensor);
    good &= arguments[k] != nullptr;
  }
  for (int64 k = 0; k < further; k++) arguments[count + k] = PyLong_FromLong(sizes[k]);
  PyObject* function = PyTuple_GetItem(context.steps, step);
  PyObject* result = good ? PyObject_Vectorcall(function, arguments, count + further, nullptr) : nullptr;
  for (int64 k = 0; k < count + further; k++)
    if (arguments[k]) Py_DecRef(arguments[k]);
  good = result != nullptr;
  for (int64 k = 0; good && k < results; k++) {
    PyObject* item = PyTuple_GetItem(result, k);
    good = is_tensor(item) && !aoti_torch_new_tensor_handle(handle(item), &made[k].tensor);
  }
  if (!good && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "an operator returned no tensor");
  if (result) Py_DecRef(result);
  context.lock = PyEval_SaveThread();
  return good;
}"""


def shared_workspace(size: int, dtype: int) -> str:
    """C++ of the memory that a graph's kernels share for their workspaces: `size` bytes (`dtype` is the code of uint8),
    allocated for the first of them, until the call returns. The stream runs one kernel after the other."""
    return f"""\
static bool has_workspace(Owned& shared, void** at) {{
  static const int64 size[] = {{{size}}}, stride[] = {{1}};
  return shared.tensor || (empty(shared, 1, size, stride, {dtype}) && !aoti_torch_get_data_ptr(shared.tensor, at));
}}"""


WITHOUT_PYTHON = f"""\
static const Table* own_table;
{EXPORTED} void ptdebug_launches(const Table* table) {{ own_table = table; }}
static int64 run_on_gpu(const Tensor* in, const int64* numbers, int64* sizes, Owned* out) {{
  Context context = {{own_table, nullptr}};
  return run(context, in, numbers, sizes, out);
}}
"""
"""What a program without Python calls; it makes the table of launches itself."""

CURRENT = """\
static bool is_current() {
  int32 index;
  return !aoti_torch_get_current_device_index(&index) && index == device_index;
}"""
ALWAYS_CURRENT = "static bool is_current() { return true; }  // there is one of them"

DEVICES: Mapping[str, tuple[int, str]] = {"cpu": (0, ALWAYS_CURRENT), "cuda": (1, CURRENT)}
"""Of a kind of device its number in torch's C interface, and the C++ of whether the graph's is current."""

__all__ = ["DEVICES", "FUNCTIONS", "HEAD", "LAUNCHES", "RAISED", "WITHOUT_PYTHON", "shared_workspace"]
