/* Runs packages that `ptdebug export` wrote, without Python. Compile ptdebug_package.cpp with the program, and link it
   with libtorch_cpu and libc10 of the torch version that the package was exported with; one for a GPU needs libtorch_cuda
   besides, linked or where the program finds libraries, and runs on torch's current stream.

   Tensors are handles of torch's stable C interface (torch/csrc/inductor/aoti_torch/c/shim.h). A call takes the tensors
   of the model's arguments in their order, those inside of lists and dicts one after another (numbers, strings and None
   are part of the package and are left out), and gives those of its results likewise; integers that vary, and those
   that the model computes, are tensors without dimensions. A package is code: load what you know the origin of. */
#ifndef PTDEBUG_PACKAGE_H
#define PTDEBUG_PACKAGE_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct AtenTensorOpaque;
typedef struct AtenTensorOpaque* AtenTensorHandle;
typedef struct PtdebugPackage PtdebugPackage;
typedef struct PtdebugEntry PtdebugEntry;

/* The package in a file. NULL where it cannot be loaded: ptdebug_error says why (damaged, another torch, another CPU
   or GPU). */
PtdebugPackage* ptdebug_load(const char* path);
void ptdebug_free(PtdebugPackage* package);

/* What went wrong in the last call of this thread that failed; valid until the next. */
const char* ptdebug_error(void);

/* An entry point by name; with NULL the first. NULL where there is none, or where it runs from Python only. */
PtdebugEntry* ptdebug_entry(PtdebugPackage* package, const char* name);

/* How many tensors it takes and returns, and what they are: `x: float32 [batch, 8]`, valid until this thread asks again. */
int64_t ptdebug_inputs(const PtdebugEntry* entry);
int64_t ptdebug_outputs(const PtdebugEntry* entry);
const char* ptdebug_input(const PtdebugEntry* entry, int64_t position);

/* Run it. Returns 0, and new handles in `outputs`, which the caller frees (aoti_torch_delete_tensor_object); or 1, and
   then ptdebug_error says what does not fit. Inputs stay the caller's. Gradients are not recorded. Several threads may
   run entry points of a package at once, unless these write to a buffer, or to an input that others are given. */
int ptdebug_run(PtdebugEntry* entry, const AtenTensorHandle* inputs, int64_t input_count, AtenTensorHandle* outputs,
                int64_t output_count);

/* A parameter or buffer by the name that it had in the model, which all entry points share; what the model writes is
   there. It stays the package's. NULL where there is none. */
AtenTensorHandle ptdebug_weight(PtdebugPackage* package, const char* name);

#ifdef __cplusplus
}
#endif
#endif
