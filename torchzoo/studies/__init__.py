"""Plans of cases with a report: userbenchmarks, and studies that repeat published measurements."""
