"""torch: tensors, functions, modes, subclasses, optimizers.

Read `tensor.py`, `tensor_methods.py` and `graph_functions.py` (which functions become nodes), `torch_functions.py`
(handlers of the others), `context_manager.py` and `torch_modes.py` (modes), `torch_function_overrides.py` with
`torch_function_modes.py` (`__torch_function__`), `tensor_subclasses.py` and `wrapper_subclasses.py`,
`runtime_asserts.py` (checks that the graph makes). `made_parameters.py`, `tensor_assignment.py`, `tensor_hooks.py`,
`scalar_tensor_index.py` and the other small files each model one difficult feature. `nn/` has modules,
`higher_order/` operators that take functions.
"""
