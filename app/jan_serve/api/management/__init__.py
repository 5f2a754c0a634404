"""Model management: list models with their state, load, unload, pull and delete them.

Routes and values follow llama-server's router where it has them (its README, "Using multiple models").
"""
