"""Models of other programs on this machine: found in their folders, taken over by links, never copied or changed.

found: the values, and what all finders share. ollama, lmstudio, jan, hf: one finder each. link: taking one over.
"""
