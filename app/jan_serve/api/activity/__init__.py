"""The requests of a server: which run, which ended lately, and why one took its time."""
