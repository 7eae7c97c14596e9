"""ptxas drops the constant of an addition of packed 16-bit integers. This compiles a program only: it needs no GPU.

For Hopper (sm_90), NVIDIA's assembler turns `add.s16x2` with a constant into an addition of nothing, where the upper
half of the constant is zero and only the lower half of the result is used. In timm's `eca_halonext26ts`, that makes a
mask wrong which keeps a load inside its tensor. ptxas 12.8 and 12.9 do so; Triton 3.6 (torch 2.11) and 3.9 (torch 2.15)
bring them along for Hopper. ptxas 13.4 does not. With `TRITON_PTXAS_PATH` Triton takes another one. It looks like
https://github.com/triton-lang/triton/issues/11581.

    python benchmarks/faults/dropped_immediate.py [PTXAS ...]
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton  # type: ignore[import-untyped]

CONSTANT = 0xFFFE  # -2 in the lower half, 0 in the upper half
ASSEMBLERS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

PROGRAM = f"""
.version 8.7
.target sm_90a
.address_size 64
.visible .entry add_twice(.param .u64 data)
{{
    .reg .b32 %r<8>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [data];
    ld.global.v2.b32 {{%r1, %r2}}, [%rd1];
    mov.b32 %r3, {CONSTANT};
    add.s16x2 %r4, %r1, %r3;
    add.s16x2 %r5, %r2, %r3;
    cvt.s32.s16 %r6, %r4;
    cvt.s32.s16 %r7, %r5;
    st.global.v2.b32 [%rd1], {{%r6, %r7}};
    ret;
}}
"""


def added_constants(assembler: Path) -> list[int]:
    """The constants that the machine code adds to packed integers. Two are right, both equal to the program's."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "program.ptx", Path(folder) / "program.cubin"
        source.write_text(PROGRAM)
        subprocess.run([assembler, "-arch=sm_90a", source, "-o", binary], check=True)
        code = subprocess.run([ASSEMBLERS / "nvdisasm", binary], check=True, capture_output=True, text=True).stdout
    return [int(constant, 16) for constant in re.findall(r"VIADD\.16x2 .*, (0x[0-9a-f]+) ?;", code)]


def main() -> int:
    """Say for each assembler what it adds. Returns 1 if one of them adds nothing where there is something to add."""
    assemblers = [Path(name) for name in sys.argv[1:]] or sorted(ASSEMBLERS.glob("ptxas*"))
    is_wrong = False
    for assembler in assemblers:
        says = subprocess.run([assembler, "--version"], check=True, capture_output=True, text=True).stdout
        version = re.search(r"V(\d\S*)", says)
        constants = added_constants(assembler)
        is_wrong |= 0 in constants
        words = ", ".join(f"{constant:#x}" for constant in constants) or "no constants, but what registers hold"
        verdict = "WRONG" if 0 in constants else "right" if constants == [CONSTANT, CONSTANT] else "not known"
        print(f"{assembler.name} {version[1] if version else '?'}: adds {words}: {verdict}")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
