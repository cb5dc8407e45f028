"""Compiles one small kernel for a target, in a process of its own: LLVM aborts the process for unknown ones.

Started by `targets.py` as a script with the capability ("90") as its argument; it imports nothing of ptdebug.
"""
import sys


def main(capability: str) -> None:
    """Raise, or die, where Triton cannot compile for the target."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    @triton.jit
    def numbers(pointer, n: tl.constexpr):  # type: ignore[no-untyped-def]
        places = tl.arange(0, n)
        tl.store(pointer + places, places)

    numbers.__globals__["tl"] = tl
    source = ASTSource(fn=numbers, signature={"pointer": "*i32", "n": "constexpr"}, constexprs={"n": 32})
    triton.compile(source, target=GPUTarget("cuda", int(capability), 32))


if __name__ == "__main__":
    main(sys.argv[1])
