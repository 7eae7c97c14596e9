"""A row that is written and read back in one kernel, by other threads, without a barrier. It needs no GPU.

In a loop over a row, inductor of torch 2.11 may store a buffer, and load it again in the next loop. Triton chooses for
each store and each load which thread takes which elements. Where a float32 store stands beside loads of float16, it
chooses differently for the two. So a thread reads what another one has not written yet. In hf_GPT2_large under autocast
(rows of 1,280 numbers), a layer norm is written like this: the loss and all gradients are wrong, differently each time.
Inductor of torch 2.15 writes a barrier (https://github.com/pytorch/pytorch/pull/190519).

    python benchmarks/faults/read_back.py
"""

# ruff: noqa: ANN001, ANN201, N803  Triton reads the arguments of a kernel, and takes no Any

import inspect
import re
import sys

import triton  # type: ignore[import-untyped]
from torch._inductor.codegen.triton import TritonKernel
from triton import language as tl
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.compiler import ASTSource  # type: ignore[import-untyped]

ROWS, COLUMNS, WARPS = 2, 2048, 16  # a configuration that inductor tries for hf_GPT2_large
TARGET = GPUTarget("cuda", 90, 32)  # Hopper


@triton.jit  # type: ignore[untyped-decorator]
def kernel(single, half, kept, result, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keep the sum of a float32 row and a float16 row, and write half of what was kept as float16."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    for begin in tl.range(0, width, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)[None, :]
        place = column + 1280 * row
        total = tl.load(single + place, column < width) + tl.load(half + place, column < width).to(tl.float32)
        tl.store(kept + place, total, column < width)
    for begin in tl.range(0, width, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)[None, :]
        place = column + 1280 * row
        again = tl.load(kept + place, column < width)
        tl.store(result + place, (0.5 * again).to(tl.float16), column < width)


def layouts() -> tuple[str, str, bool]:
    """Which threads take which elements in the store and in the load behind it, and whether a barrier is between."""
    types = {"single": "*fp32", "half": "*fp16", "kept": "*fp32", "result": "*fp16", "width": "i32"}
    constants = {"ROWS": ROWS, "COLUMNS": COLUMNS}
    signature = types | dict.fromkeys(constants, "constexpr")
    divisible = {(number,): [["tt.divisibility", 16]] for number in range(len(types))}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=divisible)
    program = triton.compile(source, target=TARGET, options={"num_warps": WARPS}).asm["ttgir"]
    named = dict(re.findall(r"^(#\w+) = (#ttg\.blocked<.*>)$", program, re.MULTILINE))
    (store,) = re.finditer(r"tt\.store .* : tensor<\d+x\d+x!tt\.ptr<f32>, (#\w+)>", program)
    (load,) = re.finditer(r"tt\.load .* : tensor<\d+x\d+x!tt\.ptr<f32>, (#\w+)>", program[store.end() :])
    between = program[store.end() : store.end() + load.start()]
    return named[store[1]], named[load[1]], "barrier" in between


def main() -> int:
    """Say what Triton chooses, and what inductor does about it. Returns 1 if inductor writes no barrier."""
    store, load, has_barrier = layouts()
    print(f"Triton {triton.__version__}, {WARPS} warps\n  store {store}\n  load  {load}")
    print(
        f"  {'the same threads' if store == load else 'other threads'}, {'a' if has_barrier else 'no'} barrier between"
    )
    writes_one = "debug_barrier" in inspect.getsource(TritonKernel.load)
    print(
        f"inductor {'writes a barrier' if writes_one else 'writes no barrier'} before it reads back what it has stored"
    )
    return int(not writes_one)


if __name__ == "__main__":
    sys.exit(main())
