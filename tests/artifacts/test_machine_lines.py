"""The line tables of compiled forms of kernels."""
from __future__ import annotations

import pytest
from ptdebug.artifacts.machine_lines import relined, sass_with_lines, source_lines

ASM = """\
0000000000001150 <_ZL7fused_2PfPKf>:
    ; line 210
    1150:\tlea    r10,[rsp+0x8]
    1155:\tand    rsp,0xffffffffffffffc0
    ; line 223
    1179:\tvaddps zmm1,zmm2,ZMMWORD PTR [rdi]

0000000000001200 <other>:
    1200:\tret"""
PTX = """\
.visible .entry fused_0(
{
\t.loc\t1 13 0
\tmov.u32 %r1, %tid.x;
\t.loc\t1 9 22, function_name $L__info_string0, inlined_at 1 25 15 // <ptdebug>:9:22
\tmul.rn.f32 \t%r1, %r9, %r2;
}
\tret;"""
INLINE = """\
\t.loc\t1 18 12
\tmov.pred \t%p1, -1;
\t// begin inline asm
\t.loc\t1 18 12
\tmov.u32 %r13, 0x0;
\t.loc\t1 19 12
\t@%p1 ld.global.b32 { %r13 }, [ %rd5 + 0 ];
\t// end inline asm
\tadd.f32 %r14, %r13, %r13;
\t.loc\t1 20 12
\tret;"""
LIBRARY = """\
\t.loc\t1 13 19
\t.loc\t2 314 12, function_name $L__info_string0, inlined_at 1 13 19 // standard.py:314:12
\t.loc\t2 287 12, function_name $L__info_string0, inlined_at 2 314 12 // standard.py:287:12
\tadd.rn.f32 \t%r39, %r31, %r32;
\t.loc\t2 293 36                        // standard.py:293:36 @[ <ptdebug triton fused_0>:14:32 ]
\tshfl.sync.bfly.b32 \t%r46, %r45, 16, 31, -1;
\t.loc\t2 9 1
\tret;
\t.file\t1 "<ptdebug triton fused_0>"
\t.file\t2 "/triton/language/standard.py\""""
SASS = """\
.text.fused_0:
\t//## File ".nv_debug_ptx_txt", line 7
        /*00a0*/                   LDG.E R4, desc[UR6][R4.64] ;
\t//## File ".nv_debug_ptx_txt", line 11 inlined at line 3
        /*00b0*/                   EXIT ;
\t//## File ".nv_debug_ptx_txt", line 99
        /*00c0*/                   NOP;
//--------------------- SYMBOLS ---"""
TTIR = """\
#loc = loc("<ptdebug triton fused_0 10a>":13:1)
#loc22 = loc("<ptdebug triton fused_0 10a>":30:17)
#loc30 = loc("/x/triton/language/standard.py":314:12)
#loc44 = loc("softmax_3"(#loc22))
#loc51 = loc(callsite(#loc30 at #loc44))
#loc90 = loc("a"(#loc91))
#loc91 = loc("b"(#loc90))
    %0 = arith.constant 1 : i32 loc(#loc)
    %1 = "tt.reduce"(%0) loc(#loc51)
    %2 = foo loc(#loc90)
  } loc(#loc44)"""
LLIR = """\
  %5 = tail call i32 @x(), !dbg !12
  %6 = mul i32 %5, 2, !dbg !13
!12 = !DILocation(line: 16, column: 9, scope: !5)
!13 = !DILocation(line: 314, column: 12, scope: !34, inlinedAt: !37)
!37 = !DILocation(line: 30, column: 17, scope: !26)"""


@pytest.mark.parametrize("form, text, lines", [
    ("asm", ASM, [0, 210, 210, 210, 223, 223, 0, 0, 0]),
    ("ptx", PTX, [0, 0, 13, 13, 25, 25, 0, 0]),
    ("ttir", TTIR, [0, 0, 0, 0, 0, 0, 0, 13, 30, 0, 30]),
    ("llir", LLIR, [16, 30, 0, 0, 0]),
    ("vectors", "line 7: loop vectorized using 64 byte vectors\nsomething else", [7, 0]),
    ("ptx", INLINE, [18] * 9 + [20, 20]),  # in inline assembly LLVM counts the lines of that text
    ("ptx", LIBRARY, [13, 13, 13, 13, 14, 14, 0, 0, 0, 0]),  # as Triton 3.9 and as 3.6 says what is inlined
    ("fused_0_combine.ptx", PTX, [0, 0, 13, 13, 25, 25, 0, 0]),
    ("sass", sass_with_lines(SASS, INLINE), [0, 18, 18, 20, 20, 0, 0, 0]),  # and a last empty line
    ("sass", "a\nb", [0, 0]),
])
def test_lines_of_a_form(form, text, lines):
    assert source_lines(form, text) == lines


def test_lines_of_another_text():
    """A binary that two kernels share has the line table of one; what the other lacks is no line."""
    assert sass_with_lines(SASS, INLINE).startswith(
        ".text.fused_0:\n  // line 18, PTX 7\n    /*00a0*/ LDG.E R4, desc[UR6][R4.64] ;\n")
    moved = {13: 33, 25: 45, 30: 50, 16: 36}
    assert source_lines("ptx", relined("ptx", PTX, moved)) == [0, 0, 33, 33, 45, 45, 0, 0]
    assert source_lines("ttir", relined("ttir", TTIR, moved))[-4:] == [33, 50, 0, 50]
    assert source_lines("llir", relined("llir", LLIR, moved))[:2] == [36, 50]
    assert source_lines("ptx", relined("ptx", PTX, {13: 33})) == [0, 0, 33, 33, 0, 0, 0, 0]
