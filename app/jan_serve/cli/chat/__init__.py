"""Chat in a terminal, over the HTTP API of a server.

conversation: what was said, and the request that it makes. parameters, answer_format: what can be asked of an answer.
answer: one answer as it comes. prompt: the line editor. slash_commands: `/set` and the like. session: the loop.
"""
