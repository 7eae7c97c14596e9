"""Reports: they show what `analysis` has derived, with units and rounded. `formats.py` lists the formats."""
