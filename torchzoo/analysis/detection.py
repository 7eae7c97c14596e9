"""The options of the search for change points. Here, so that the command line knows them without numpy."""

#: The most values that are searched at once, as in Hunter.
WINDOW = 50
#: The greatest p-value of a change point. The tests are many and not corrected: each window is split where it looks
#: worst. So p is far from the share of quiet series in which one is found. 0.0001 finds almost as many steps as
#: Hunter's 0.001, in far fewer quiet series (docs/results/2026-11-22-change-points.md).
P_VALUE = 1e-4
#: The weak pass accepts p-values that are so many times as large. A change near another is weak until both are found.
WEAKER = 10.0
#: The fewest values on each side of a change point. One outlier is no change, unless it is so large that it carries the
#: night beside it along.
LEAST_LENGTH = 2
