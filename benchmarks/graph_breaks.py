"""Why Dynamo ends graphs, ranked over the models of several kept runs, which may be of different machines.

    python benchmarks/graph_breaks.py docs/studies/paper_compilers docs/results/2026-11-23-h200-new-models [RUN ...]

Of a model and mode that several runs have, the last one named counts. Only compiled cases that were measured do. The
first lines say how many models have breaks, and how fast cases with and without them are beside eager.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean

from torchzoo.analysis.cases import CaseResult, read_report_data
from torchzoo.case import EAGER
from torchzoo.report import graph_breaks, markdown
from torchzoo.report.graph_breaks import break_causes


def compiled(folders: list[str]) -> list[CaseResult]:
    """The measured cases with a backend of these runs, one for each model and mode."""
    found = {}
    for folder in folders:
        for result in read_report_data([Path(folder)]).cases:
            if result.case.backend != EAGER and result.figures is not None:
                found[result.case.model, result.case.mode] = result
    return list(found.values())


def main() -> None:
    """Print the ranking as Markdown."""
    results = compiled(sys.argv[1:])
    models = {result.case.model for result in results}
    broken = [result for result in results if break_causes([result])]
    broken_models = {result.case.model for result in broken}
    print(f"{len(results)} cases of {len(models)} models; {len(broken_models)} models have breaks\n")
    whole = [result for result in results if result not in broken]
    for words, some in (("with", broken), ("without", whole)):
        ratios = [1 / one.figures.time_ratio.value for one in some if one.figures and one.figures.time_ratio]
        print(f"{len(ratios)} cases {words} breaks: {geometric_mean(ratios):.2f}x as fast as eager")
    print("", markdown.render(graph_breaks.document(results)), sep="\n", end="")


if __name__ == "__main__":
    main()
