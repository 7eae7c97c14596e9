"""What follows from records: what became of cases, figures, totals, comparisons, noise. Pure, and without torch."""
