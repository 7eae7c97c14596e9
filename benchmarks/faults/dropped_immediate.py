"""ptxas drops the constant of an addition of packed 16-bit integers. This compiles a program only: it needs no GPU.

For Hopper (sm_90), NVIDIA's assembler turns `add.s16x2` with a constant into an addition of nothing, where only the
lower half of the result is used. Triton writes such additions for indices that fit into 16 bits. Two models of timm are
wrong by it: in `eca_halonext26ts`, a mask that keeps a load inside its tensor; in `nfnet_l0`, a mask by which elements
get their part of the gradient of an average pooling. ptxas 12.8 and 12.9 do so; Triton 3.6 (torch 2.11) and 3.9
(torch 2.15) bring them along for Hopper. ptxas 13.4 does not. With `TRITON_PTXAS_PATH` Triton takes another one. It
looks like https://github.com/triton-lang/triton/issues/11581.

    python benchmarks/faults/dropped_immediate.py [PTXAS ...]
    python benchmarks/faults/dropped_immediate.py --kernels DIR  # such as /tmp/torchinductor_USER

The second command names the compiled kernels under a folder that add nothing.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton  # type: ignore[import-untyped]

CONSTANTS = (0xFFFE, 0x10001)  # -2 in the lower half, and 0 in the upper; 1 in both
ASSEMBLERS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

PROGRAM = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry add_twice(.param .u64 data)
{{
    .reg .b32 %r<8>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [data];
    ld.global.v2.b32 {{%r1, %r2}}, [%rd1];
    mov.b32 %r3, {constant};
    add.s16x2 %r4, %r1, %r3;
    add.s16x2 %r5, %r2, %r3;
    cvt.s32.s16 %r6, %r4;
    cvt.s32.s16 %r7, %r5;
    st.global.v2.b32 [%rd1], {{%r6, %r7}};
    ret;
}}
"""


def main() -> int:
    """Look at assemblers or at kernels. Returns 1 if something adds nothing where there is something to add."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assemblers", nargs="*", type=Path, metavar="PTXAS", help="default: those of Triton")
    parser.add_argument("--kernels", type=Path, metavar="DIR", help="look at compiled kernels instead")
    arguments = parser.parse_args()
    if arguments.kernels:
        return look_at_kernels(arguments.kernels)
    wrong = [look_at(assembler) for assembler in arguments.assemblers or sorted(ASSEMBLERS.glob("ptxas*"))]
    return int(any(wrong))


def look_at(assembler: Path) -> bool:
    """Say what an assembler adds in place of each constant, and return whether one is dropped."""
    says = subprocess.run([assembler, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"V(\d\S*)", says)
    is_wrong = False
    for constant in CONSTANTS:
        added = added_constants(assembler, constant)
        is_wrong |= 0 in added
        words = ", ".join(f"{one:#x}" for one in added) or "no constants, but what registers hold"
        is_right = bool(added) and all(one & 0xFFFF == constant & 0xFFFF for one in added)  # the half that is used
        verdict = "WRONG" if 0 in added else "right" if is_right else "not known"
        print(f"{assembler.name} {version[1] if version else '?'}: for {constant:#x} adds {words}: {verdict}")
    return is_wrong


def added_constants(assembler: Path, constant: int) -> list[int]:
    """The constants that the machine code adds to packed integers. Two are right, both equal to the program's."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "program.ptx", Path(folder) / "program.cubin"
        source.write_text(PROGRAM.format(constant=constant))
        subprocess.run([assembler, "-arch=sm_90a", source, "-o", binary], check=True)
        return packed_additions(binary)


def packed_additions(binary: Path) -> list[int]:
    """The constants that a compiled kernel adds to packed integers."""
    code = subprocess.run([ASSEMBLERS / "nvdisasm", binary], check=True, capture_output=True, text=True).stdout
    return [int(constant, 16) for constant in re.findall(r"VIADD\.16x2 .*, (0x[0-9a-f]+) ?;", code)]


def look_at_kernels(folder: Path) -> int:
    """Name the kernels that add nothing. Triton keeps a kernel's assembly (.ptx) beside its machine code (.cubin)."""
    packed = [one for one in sorted(folder.rglob("*.ptx")) if "add.s16x2" in one.read_text()]
    wrong = [one.with_suffix(".cubin") for one in packed]
    wrong = [one for one in wrong if one.exists() and 0 in packed_additions(one)]
    for one in wrong:
        print(f"{one}: WRONG")
    print(f"{len(wrong)} of {len(packed)} kernels that add packed integers add nothing somewhere")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
