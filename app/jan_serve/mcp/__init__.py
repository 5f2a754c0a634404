"""Servers of the Model Context Protocol: their file, sessions with them, and their tools.

The package `mcp` speaks the protocol; it is an extra of the installation (`jan-serve[mcp]`). Nothing that a server
sends is trusted: messages, lists, schemas and results have limits.
"""
