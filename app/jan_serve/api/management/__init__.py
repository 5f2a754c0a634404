"""Models as a person or a program manages them: listed with their state, loaded, unloaded, pulled, deleted.

The routes and values are those of llama-server's router where it has them (its README, "Using multiple models").
"""
