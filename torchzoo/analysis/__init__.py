"""Derive statuses, figures, totals, comparisons and noise from records, without torch and without side effects."""
