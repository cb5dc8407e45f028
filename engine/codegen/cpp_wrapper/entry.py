"""The C++ text that all wrappers share: declarations, torch's functions as pointers, and helpers."""
from __future__ import annotations

from .shim import USED, WRAP, parameters_of

ON_CPU = "static const int32 device_type = 0, device_index = 0;  // of what is allocated"

EXPORTED = 'extern "C" __attribute__((visibility("default")))'

OBJECTS = """\
extern "C" {
PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, int64, PyObject*);
PyObject* PyTuple_New(int64);
int64 PyTuple_Size(PyObject*);
PyObject* PyTuple_GetItem(PyObject*, int64);
int PyTuple_SetItem(PyObject*, int64, PyObject*);
int64 PyList_Size(PyObject*);
PyObject* PyList_GetItem(PyObject*, int64);
int PyList_SetSlice(PyObject*, int64, int64, PyObject*);
int PyObject_IsTrue(PyObject*);
void PyErr_Clear();
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
}
typedef struct TorchTensor* Tensor;  // torch's AtenTensorHandle
typedef struct TorchList* List;
struct Object { int64 count; void* type; void* tensor; };  // a tensor of Python
static void *tensor_type, *parameter_type, *int_type;
static PyObject* (*wrap)(Tensor);  // takes the tensor out of its handle"""

HELPERS = """\
static bool is_tensor(PyObject* object) {
  void* type = ((Object*)object)->type;
  return type == tensor_type || type == parameter_type;
}
// Kinds of arguments: a tensor, a number, or one that nothing reads.
static bool fits(PyObject* object, char kind) {
  return kind == 't' ? is_tensor(object) : kind != 'n' || ((Object*)object)->type == int_type;
}
static Tensor handle(PyObject* object) { return (Tensor)&((Object*)object)->tensor; }
static PyObject* called(PyObject* function, PyObject* argument) {
  PyObject* result = PyObject_Vectorcall(function, &argument, 1, nullptr);
  Py_DecRef(argument);
  return result;
}
static bool holds(PyObject* predicate, PyObject* tensor) {
  PyObject* answer = PyObject_Vectorcall(predicate, &tensor, 1, nullptr);
  const bool yes = answer && PyObject_IsTrue(answer);
  if (answer) Py_DecRef(answer); else PyErr_Clear();
  return yes;
}
struct Owned {
  Tensor tensor = nullptr;
  ~Owned() { free(); }
  void free() { if (tensor) aoti_torch_delete_tensor_object(tensor); tensor = nullptr; }
  Tensor take() { Tensor taken = tensor; tensor = nullptr; return taken; }
};
static bool empty(Owned& made, int64 rank, const int64* size, const int64* stride, int32 dtype) {
  return aoti_torch_empty_strided(rank, size, stride, dtype, device_type, device_index, &made.tensor) == 0;
}
static bool window(Owned& made, Tensor of, int64 rank, const int64* size, const int64* stride, int64 offset) {
  return aoti_torch__reinterpret_tensor(of, rank, size, stride, offset, &made.tensor) == 0;
}
// The result of a library call with the strides that kernels were generated for.
static bool with_strides(Owned& made, int64 rank, const int64* size, const int64* stride, int32 dtype) {
  int64 n, s;
  bool same = true;
  if (aoti_torch_get_dim(made.tensor, &n) || n != rank) return false;
  for (int64 k = 0; k < rank; k++) {
    if (aoti_torch_get_size(made.tensor, k, &n) || aoti_torch_get_stride(made.tensor, k, &s)) return false;
    if (n != size[k]) return false;
    same &= s == stride[k];
  }
  if (same) return true;
  Owned copy;
  if (!empty(copy, rank, size, stride, dtype) || aoti_torch_copy_(copy.tensor, made.tensor, 0)) return false;
  made.free();
  made.tensor = copy.take();
  return true;
}"""


def declarations(functions: tuple[str, ...]) -> str:
    """C++ that declares torch's functions as pointers. Raises NoCppWrapper for one that is not there."""
    lines = [OBJECTS]
    for name in functions:
        kinds = ", ".join(p.kind for p in parameters_of(name))
        lines.append(f"static int32 (*{name})({kinds});")
    return "\n".join(lines)


def connection(functions: tuple[str, ...]) -> str:
    """C++ of what `load.py` calls: gives the library its addresses, and returns the callable with its state."""
    lines = [
        "static const struct { const char* name; void** place; } torch_functions[] = {",
        *[f'  {{"{name}", (void**)&{name}}},' for name in functions],
        "};",
        'static PyMethodDef wrapper_method = {"call", call, 0x80, nullptr};',
        f"{EXPORTED} PyObject* ptdebug_wrapper(void** from, PyObject* state) {{",
        "  tensor_type = from[0], parameter_type = from[1], int_type = from[2], *(void**)&wrap = from[3];",
        f"  for (int k = 0; k < {len(functions)}; k++) *torch_functions[k].place = from[4 + k];",
        "  return PyCMethod_New(&wrapper_method, state, nullptr, nullptr);",
        "}",
    ]
    return "\n".join(lines)


def without_python(functions: tuple[str, ...], call: str = "run(in, numbers, sizes, out)") -> str:
    """C++ of what a program without Python calls (`engine/package/native`): the same, connected by names. `call` is
    that of the graph."""
    return f"""\
{EXPORTED} const char* ptdebug_connect(void* (*find)(const char*)) {{  // the name of a function that is not there
  for (int k = 0; k < {len(functions)}; k++)
    if (!(*torch_functions[k].place = find(torch_functions[k].name))) return torch_functions[k].name;
  return nullptr;
}}
{EXPORTED} int64 ptdebug_call(const Tensor* in, const int64* numbers, int64* sizes, Owned* out) {{
  return {call};
}}"""


def used_by(called: list[str]) -> tuple[str, ...]:
    """The functions of torch in the order of the table: those of every wrapper, and those that this one calls."""
    return tuple(dict.fromkeys((*USED, *called)))


__all__ = ["EXPORTED", "HELPERS", "ON_CPU", "WRAP", "connection", "declarations", "used_by", "without_python"]
