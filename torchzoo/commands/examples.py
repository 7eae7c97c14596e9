"""Examples below the help of each command: one to three that work as written."""

from __future__ import annotations

EXAMPLES = {
    "run": (
        "torchzoo run resnet18",
        "torchzoo run 'hf_*' dcgan -t train,eval --backend inductor -o runs/today",
        "torchzoo run --resume runs/today --retry-failed",
    ),
    "ab": (
        "torchzoo ab --base torch==2.14.1 --candidate torch==2.15.0 resnet18 -t train,eval -o runs/ab",
        "torchzoo ab --candidate TORCHINDUCTOR_FREEZING=1 resnet18 --backend inductor",
    ),
    "list": (
        "torchzoo list --domain speech",
        "torchzoo list --suite torchbench --columns name,domain,parameters,train",
        "torchzoo list resnet18 hf_Bert --table -o models.md",
    ),
    "report": (
        "torchzoo report runs/today",
        "torchzoo report runs/today --noise",
        "torchzoo report runs/today --format html -o today.html",
    ),
    "show": (
        "torchzoo show runs/today resnet18 train inductor",
        "torchzoo show runs/today 'hf_Bert eval*' --samples",
    ),
    "compare": (
        "torchzoo compare runs/yesterday runs/today",
        "torchzoo compare runs/base runs/new --across=torch --format md",
    ),
    "history show": (
        "torchzoo history show resnet18 --runs runs",
        "torchzoo history show 'hf_*' -t train -d cuda --metric latency",
    ),
    "history regressions": ("torchzoo history regressions --from 2.14.1 --to 2.15.0",),
    "history page": ("torchzoo history page -o history.html",),
    "history speed": ("torchzoo history speed --runs runs --least-magnitude 5%",),
    "bisect": (
        "torchzoo bisect --good torch==2.11.0 --bad torch==2.15.0 resnet18 --backend inductor -o runs/bisect",
        "torchzoo bisect --resume runs/bisect",
        "torchzoo bisect --inside-inductor runs/checked",
    ),
    "watch": (
        "torchzoo watch nights --suite torchbench -t train,eval -d cuda --backend inductor",
        "torchzoo watch nights 'timm_*' --software timm@/src/timm:HEAD --issue github --repo OWNER/NAME",
    ),
    "dynamobench": (
        "torchzoo dynamobench --pytorch /src/pytorch -- --inference --accuracy --inductor -d cpu --only resnet18",
    ),
    "export": (
        "torchzoo export runs/today --format dynamo-csv -o csv",
        "torchzoo export runs/today --format hud-v3 -o hud.json",
        "torchzoo export runs/today --format op-shapes -o operators.jsonl",
    ),
    "new": (
        "torchzoo new my_resnet --like resnet18",
        "torchzoo new my_decoder --like hf_GPT2 --models-dir my_models",
    ),
    "check-model": ("torchzoo check-model resnet18", "torchzoo check-model my_models/my_resnet --write"),
    "userbenchmark": (
        "torchzoo userbenchmark",
        "torchzoo userbenchmark optim resnet18 -d cuda -o runs/optim",
        "torchzoo userbenchmark optim --from runs/optim",
    ),
    "study": (
        "torchzoo study paper_breakdown -d cuda",
        "torchzoo study paper_compilers --part 1/3 -d cuda -o part1",
        "torchzoo study paper_breakdown --from docs/studies/paper_breakdown",
    ),
    "doctor": (
        "torchzoo doctor",
        "torchzoo doctor --peaks",
        "torchzoo doctor --batches resnet18 -d cuda --file batches.yaml",
    ),
    "env make": ("torchzoo env make torch==2.14.1",),
    "env list": ("torchzoo env list",),
    "env prune": ("torchzoo env prune --older-than 30d",),
}
