"""PyTorch's settings, one by one: which ptdebug honours, and why the others have no meaning here.

`torch._inductor.config` (also as `options=`) and `torch._dynamo.config`, as of torch 2.13. Neither is imported: what a
program sets is read where it has loaded the module. `docs/backends.md` is about the same for people.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

import torch

INDUCTOR, DYNAMO = "torch._inductor.config", "torch._dynamo.config"

PREFERRED: Mapping[str, tuple[Any, str, str]] = {
    # setting: its value, and the decisions (kind, option) that it makes
    "emulate_precision_casts": (True, "intermediate-precision", "eager"),
    "inplace_buffers": (False, "in-place", "new-buffer"),
    "allow_buffer_reuse": (False, "reuse", "allocate"),
    "split_reductions": (False, "split-reduction", "1"),
    "layout_optimization": (False, "conv-layout", "contiguous"),
    "cpp.weight_prepack": (False, "prepack", "as-stored"),
    "shape_padding": (False, "pad-mm", "unpadded"),
    "cpp.simdlen": (256, "vector-width", "256-bit"),
    "disable_cpp_codegen": (True, "compile", "aten"),
    "fallback_by_default": (True, "compile", "aten"),
}
"""Settings of Inductor that are decisions of ptdebug."""

HONOURED_INDUCTOR = (
    "freezing", "cpp_wrapper", "max_autotune", "triton.cudagraphs", "fx_graph_cache", "force_disable_caches",
    "guard_filter_fn", *PREFERRED,
)
HONOURED_DYNAMO = (
    "recompile_limit", "error_on_recompile", "fail_on_recompile_limit_hit", "suppress_errors", "disable",
    "automatic_dynamic_shapes", "assume_static_by_default", "dynamic_shapes", "optimize_ddp",
)

_RECORDED = "what it writes down is in a recording: ptdebug run, ptdebug show"
_ALWAYS = "ptdebug always does so"
_OWN_SCHEDULER = "ptdebug's scheduler decides by its own rules (ptdebug decisions)"
_ON_CPU = "" if torch.version.cuda else "graphs of a CPU get a C++ wrapper; CUDA graphs are for those of a GPU"
_GRAPHS = "ptdebug's CUDA graphs have rules of their own (ptdebug cudagraphs)"
_MEASURED = ("ptdebug measures library kernels, matrix products of its own beside them, and each graph beside eager; "
             "it estimates the tiles of its other kernels")
_OF_TRITON = "ptdebug's Triton kernels are generated, and tuned, by its own rules"
_OWN_PASSES = "ptdebug has passes of its own (ptdebug decisions, kind pass)"
_NOT_CALLED = "ptdebug does not call the program's own passes: its ATen graphs have other invariants"
_COMMUNICATION = "ptdebug does not reorder or bucket collectives"
_OTHER_COMPILER = "it configures a compiler that ptdebug does not use"
_OWN_CACHE = "ptdebug's caches are its own (PTDEBUG_CACHE_DIR, PTDEBUG_GRAPH_CACHE=0)"
_INTERNAL = "it is for the tests or the inside of PyTorch's compiler"
_ONE_PROCESS = "the C++ of a graph is one compiler call, made while the next stage runs"
_OWN_TRACER = "ptdebug's tracer does this by its own rules"
_CAPTURES = "ptdebug's tracer captures it whatever this is"

UNUSED_INDUCTOR: tuple[tuple[str, str], ...] = (
    ("trace.* debug* *log* save_args", _RECORDED),
    ("comment_origin", _ALWAYS),
    ("generate_intermediate_hooks", "ptdebug replay compares every value with eager"),
    ("*nan_asserts", "ptdebug replay --nan names the first NaN"),
    ("profile* _profile_var benchmark_kernel benchmark_harness", "ptdebug replay --time measures"),
    ("fallback_random align_random_eager", "random numbers are always eager's"),
    ("implicit_fallbacks", _ALWAYS),
    ("size_asserts", "guards check sizes"),
    ("alignment_asserts", "kernels take any alignment"),
    ("scalar_asserts assert_indirect_indexing keep_output_stride bw_outputs_user_visible", _ALWAYS),
    ("do_not_emit_runtime_assertions", "runtime asserts are always there"),
    ("deterministic", "kernels add in one order; torch.use_deterministic_algorithms is honoured"),
    ("write_are_deterministic*", "torch.use_deterministic_algorithms is honoured"),
    ("batch_invariant", "kernels are chosen by size"),
    ("eager_numerics.*", "use emulate_precision_casts"),
    ("emulate_precision_casts_*", "saved values are rounded as the others"),
    ("use_fast_math", "sums keep their order"),
    (
        "triton.cudagraph* cudagraph* triton.*cudagraph* force_disable_cudagraph* graph_partition "
        "custom_should_partition_ops",
        _GRAPHS,
    ),
    (
        "*autotune* coordinate_descent* *autoheuristic* *benchmark* nvgemm_* lookup_table.* external_matmul "
        "mixed_mm_choice use_mixed_mm multi_kernel_hints _conv_default_backends precompilation_timeout* "
        "conv_1x1_as_mm *_choices_class",
        _MEASURED,
    ),
    ("*_custom_*pass custom_partitioner_fn", _NOT_CALLED),
    (
        "*fx_passes* *_passes *fusion_options *_pass pattern_matcher *pass_timing dce use_dce "
        "joint_graph_constant_folding *decompose* is_predispatch apply_gumbel_max_trick "
        "enable_linear_binary_folding *_mm_with_mul optimize_scatter_upon_const_tensor keep_addmm_fused* "
        "inplace_padding can_inplace_pad* enable_auto_functionalized_v2 auto_chunker.*",
        _OWN_PASSES,
    ),
    ("constant_and_index_propagation always_keep_tensor_constants", _ALWAYS),
    ("freezing_discard_parameters", "parameters are kept: a program may still change them"),
    (
        "*fusion* *combo_kernel* *realize* pick_loop_orders reorder_for_locality *pointwise_cat* "
        "reorder_for_peak_memory* size_threshold_for_succ* min_overlap_ratio unroll_reductions_threshold "
        "online_softmax min_num_split small_memory_access_threshold memory_p* expand_dimension_for* "
        "partitioned_scatter* layout_opt_default force_layout_optimization warn_mix_layout cache_sdpa_constraint "
        "*pad* *_all_bounds *_layout_constraint",
        _OWN_SCHEDULER,
    ),
    (
        "dynamic_scale_rblock triton* *triton* *launcher *cubin* *launch_metadata* assume_32bit_indexing "
        "assume_*aligned* unbacked_symint_fallback",
        _OF_TRITON,
    ),
    ("cutedsl*", _OTHER_COMPILER),
    (
        "*reorder_*comm* reorder_prefetch_limit *bucket* dedup_reduce_scatters estimate_op_runtime *_node_bw "
        "cpu_gpu_bw _fuse_ddp* *_tp _collective.* aten_distributed_optimizations.*",
        _COMMUNICATION,
    ),
    ("aot_inductor* enable_autograd_for_aot", "there are no AOTInductor packages here"),
    ("cutlass.* cuda.* xpu.* rocm.* mtia.* halide.* *_backend fx_wrapper", _OTHER_COMPILER),
    ("cpp_wrapper_build_separate cpp_cache_* compile_threads *worker* quiesce*", _ONE_PROCESS),
    ("sleep_sec*", _INTERNAL),
    ("*progress", _ONE_PROCESS),
    ("cpp.*threads", "torch.get_num_threads() decides"),
    ("cpp.*", "the C++ printer has rules of its own"),
    ("*cache* file_lock_timeout", _OWN_CACHE),
    ("static_weight_shapes", _ALWAYS),
    ("fallback_embedding_bag*", _OWN_PASSES),
    ("kernel_name_max_ops", _OWN_SCHEDULER),
    (
        "*_TESTING_ONLY *for_testing test_configs.* annotate_training is_nightly_or_source developer_warnings "
        "wrap_inductor_compiled_regions run_jit_post_compile_hook enabled_metric_tables",
        _INTERNAL,
    ),
    ("_use_fp64* force_same_precision", _ALWAYS),
    ("_save_config_ignore TYPE_CHECKING", _INTERNAL),
)
"""The other settings of Inductor, by patterns of names, the first that fits: why they have no meaning here."""

UNUSED_DYNAMO: tuple[tuple[str, str], ...] = (
    ("log* verbose *debug*", _RECORDED),
    ("repro*", "ptdebug minify and bisect do that"),
    ("verify_correctness", "ptdebug run --check-calls, and ptdebug replay"),
    ("same_two_models*", "ptdebug replay"),
    ("replay_record_enabled", _RECORDED),
    ("report_guard_failures", "ptdebug recompiles"),
    ("cprofile dynamo_profiler record_* generate_pycode base_dir", _RECORDED),
    ("capture_* trace_* enable_trace_* allow_rnn enable_faithful_generator_behavior", _CAPTURES),
    ("nested_graph_breaks", _OWN_TRACER),
    ("numpy_default_*", "NumPy's own defaults hold"),
    ("use_numpy_random_stream", "NumPy's random numbers break the graph"),
    ("compiled_autograd*", "the backward is compiled with its forward"),
    ("optimize_ddp*", _COMMUNICATION),
    ("*cudagraph*", _GRAPHS),
    ("caching_precompile strict_precompile *_pgo", _OWN_CACHE),
    ("*compiler_collectives *p2p*", _COMMUNICATION),
    ("fake_tensor_cache* *TESTING_ONLY TYPE_CHECKING _*", _INTERNAL),
    ("*", _OWN_TRACER),
)
"""The other settings of Dynamo, by patterns of names, the first that fits."""

MODES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "default": ({}, ""),
    "lite": ({"fallback_by_default": True}, "graphs run as ATen operators"),
    "reduce-overhead": ({"cpp_wrapper": True, "triton.cudagraphs": True}, _ON_CPU),
    "max-autotune-no-cudagraphs": ({"max_autotune": True}, _MEASURED),
    "max-autotune": (
        {"cpp_wrapper": True, "max_autotune": True, "triton.cudagraphs": True},
        f"{_MEASURED}{_ON_CPU and f'; {_ON_CPU}'}"),
}
"""What each mode means: the settings that it makes, and what to say of it."""


def why_unused(setting: str, module: str = INDUCTOR) -> str:
    """Why a setting has no meaning here; "" for one that is honoured."""
    honoured, table = (HONOURED_INDUCTOR, UNUSED_INDUCTOR) if module == INDUCTOR else (HONOURED_DYNAMO, UNUSED_DYNAMO)
    if setting in honoured:
        return ""
    fitting = (why for patterns, why in table if any(fnmatchcase(setting, pattern) for pattern in patterns.split()))
    return next(fitting, "ptdebug does not know it")


def set_by_program() -> Iterator[tuple[str, str, Any]]:
    """(module, name, value) of each setting that the program has changed in what it has loaded."""
    for name in (INDUCTOR, DYNAMO):
        module = sys.modules.get(name)
        for setting in getattr(module, "_config", ()):
            if module is not None and not _is_default(module, setting):
                yield name, setting, _value(module, setting)


def inductor_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The honoured settings of Inductor that hold for one compilation: those `given`, and those of its module."""
    module = sys.modules.get(INDUCTOR)
    held = {} if module is None else {
        name: _value(module, name) for name in HONOURED_INDUCTOR if not _is_default(module, name)}
    if getattr(sys.modules.get("torch.compiler.config"), "force_disable_caches", False):  # Inductor's is its alias
        held["force_disable_caches"] = True
    return {**held, **{name: value for name, value in given.items() if name in HONOURED_INDUCTOR}}


def preferred(settings: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The decisions that settings make: kind -> (option, why)."""
    return {
        kind: (option, f"{setting} = {settings[setting]!r}")
        for setting, (value, kind, option) in PREFERRED.items() if settings.get(setting) == value
    }


def _is_default(module: ModuleType, setting: str) -> bool:
    """Whether a setting has its default value: nobody has set it, or torch has set it back (`torch.export` does)."""
    try:
        return bool(module._is_default(setting) or _value(module, setting) == module._config[setting].default)
    except (AttributeError, KeyError):  # an alias, or another version's
        return True


def _value(module: ModuleType, setting: str) -> Any:
    value: Any = module
    for part in (setting,) if setting in getattr(module, "_config", ()) else setting.split("."):
        value = getattr(value, part, None)
    return value
