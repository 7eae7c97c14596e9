"""Find the reasons to keep a measured case out of means: figures not of its label, or repeated compilation."""

from __future__ import annotations

from collections import Counter

from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, REFUSED, Compilation, Flops, Measured, VariantResult

#: A case that ran more than this share of its networks' operators in eager is no measurement of its backend.
EAGER_SHARE_LIMIT = 0.25

#: A case whose variants differ in work by more than this share compares unlike things.
WORK_LIMIT = 0.02


def refusals(measured: Measured) -> list[str]:
    """The reasons why the figures do not measure what the label says; empty if they do."""
    found = [_why_eager(one) for one in measured.variants.values()]
    if not measured.unequal_work:
        found.append(why_unequal(measured.flops, measured.candidate_flops))
    return [why for why in found if why]


def _why_eager(result: VariantResult) -> str:
    """The share of the operators that ran in eager, if it is too large, and the function that Dynamo refused first."""
    refused = result.compilation.refused if result.compilation is not None else ()
    if result.coverage is None:
        if not refused:
            return ""
        share = "an unknown share of its operators"
    elif result.coverage.eager_share > EAGER_SHARE_LIMIT:
        share = f"{result.coverage.in_eager:,} of its {result.coverage.operators:,} operators"
    else:
        return ""
    if not refused:
        return f"{share} ran in eager, outside of all compiled graphs"
    guard = refused[0].reason.removeprefix(REFUSED).partition(" # ")[0]
    others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return (
        f"{share} ran in eager: Dynamo reached its limit of recompilations at {refused[0].place}{others} "
        f"(the last guard that failed: {guard})"
    )


def why_unequal(eager: Flops | None, candidate: Flops | None) -> str:
    """The first figure in which the work of the variants differs too much; empty if there is none."""
    if eager is None or candidate is None:
        return ""
    if eager.attention != candidate.attention:
        return f"the variants call different attention: {'; '.join(_attention_of_one(eager, candidate)[:2])}"
    for words, was, now in (
        ("operations", eager.total, candidate.total),
        ("bytes of matrix products, convolutions and attention", eager.product_bytes, candidate.product_bytes),
    ):
        if was is not None and now is not None and abs(now - was) > WORK_LIMIT * was:
            only = sorted(eager.without_formula.keys() ^ candidate.without_formula.keys())
            unknown = f" (no formula for {', '.join(only)})" if only else ""
            return f"the variants do different work: {words} {was:,} in eager, {now:,} in the candidate{unknown}"
    return ""


def _attention_of_one(eager: Flops, candidate: Flops) -> list[str]:
    """The calls of attention that one variant makes more often than the other: `eager 12 x flash_attention (...)`."""
    of_eager, of_candidate = Counter(eager.attention), Counter(candidate.attention)
    sides = ((EAGER_VARIANT, of_eager - of_candidate), (CANDIDATE_VARIANT, of_candidate - of_eager))
    return [f"{name} {count} x {call}" for name, only in sides for call, count in only.items()]


def late_compilations(measured: Measured) -> list[Compilation]:
    """The compilations of the variants that were compiled again during the measurement."""
    compilations = (result.compilation for result in measured.variants.values())
    return [one for one in compilations if one is not None and one.late_graphs]


def unsteady_words(compilation: Compilation) -> str:
    """The number of compilations during the measurement of a variant, and the guard that failed last, if any."""
    times = f"compiled {compilation.late_graphs} more graphs while it was measured"
    if not compilation.recompilations:
        return times
    last = compilation.recompilations[-1]
    return f"{times}; the last guard that failed: {last.reason} ({last.place})"
