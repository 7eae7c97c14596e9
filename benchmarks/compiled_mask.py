"""What a mask costs that transformers gives compiled attention, and not attention in eager.

    python benchmarks/compiled_mask.py --device cuda

transformers leaves out a mask that masks nothing. With a torch before 2.14 it does not do so while torch.compile traces
the network: it takes the tracing for an export. Printed are milliseconds a call of BERT in evaluation at bfloat16: in
eager, compiled as it is, and compiled with the question of transformers answered by "no export", so that the mask is
left out. Before them comes the attention of one layer alone, with and without a mask.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.benchmark import Timer
from transformers import BertConfig, BertForMaskedLM, masking_utils

HEADS, HEAD_SIZE, WORDS = 12, 64, 30_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("--bs", type=int, default=32, help="texts in a batch")
    parser.add_argument("--length", type=int, default=512, help="words of a text")
    parser.add_argument("--calls", type=int, default=50)
    arguments = parser.parse_args()
    device, texts, length = arguments.device, arguments.bs, arguments.length

    def took(name: str, function: Callable[[], Any]) -> None:
        timer = Timer("function()", globals={"function": function}, num_threads=torch.get_num_threads())
        print(f"{name:32} {1e3 * timer.timeit(arguments.calls).mean:9.3f} ms", flush=True)

    with torch.no_grad():
        shape = (texts, HEADS, length, HEAD_SIZE)
        query, key, value = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(3))
        mask = torch.ones(texts, 1, length, length, dtype=torch.bool, device=device)
        took("attention", lambda: scaled_dot_product_attention(query, key, value))
        took("attention with a mask", lambda: scaled_dot_product_attention(query, key, value, attn_mask=mask))
        network: Any = BertForMaskedLM(BertConfig()).to(device, torch.bfloat16).eval()
        tokens = torch.randint(0, WORDS, (texts, length), device=device)
        took("BERT in eager", lambda: network(input_ids=tokens))
        compiled: Any = torch.compile(network)
        took("BERT compiled", lambda: compiled(input_ids=tokens))
        torch._dynamo.reset()
        vars(masking_utils)["is_torchdynamo_exporting"] = lambda: False
        without_mask: Any = torch.compile(network)
        took("BERT compiled, mask left out", lambda: without_mask(input_ids=tokens))


if __name__ == "__main__":
    main()
