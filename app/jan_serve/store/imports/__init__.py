"""Imports models of other programs on this machine by links, without copying or changing them.

found: values and helpers of the finders. ollama, lmstudio, jan, hf: one finder each. link: the import of a model.
"""
