"""The public protocols, one folder each. They share parts of `api` and never import each other."""
