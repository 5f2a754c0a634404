"""`scripts/check-accelerator`: needs only Python's library, and imports nothing that it installs."""
