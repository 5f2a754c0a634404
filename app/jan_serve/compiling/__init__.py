"""The process that constraints and the calls of tools are compiled in."""
