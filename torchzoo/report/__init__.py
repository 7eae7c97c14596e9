"""Records to what people read: figures with units, tables for the terminal and in Markdown. Rounding happens here."""
