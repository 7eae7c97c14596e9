"""Find model folders, read their metadata and suites, and prove that a folder keeps the contract."""
