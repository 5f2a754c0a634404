"""Benchmarks of the proxy: a simulation through its real decisions, their cost, and real HTTP."""
