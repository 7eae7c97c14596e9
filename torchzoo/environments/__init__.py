"""Software environments: what a SPEC asks for, made by uv, and kept by their content."""
