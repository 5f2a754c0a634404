"""Chat in a terminal over the HTTP API of a server.
conversation: messages and the next request. parameters, answer_format: options of the request. chat_answer: one
answer. answer_display: its output. line_editor: input. slash_commands: `/set` and others. session: the loop."""
