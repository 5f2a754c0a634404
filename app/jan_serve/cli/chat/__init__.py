"""Chat in a terminal over the HTTP API of a server.
conversation: messages and the next request. request_options: what it has beside them. exchange: one question, its
answer and calls of tools. chat_tools: tools of MCP servers. kept_chat: chats that the server keeps. line_editor: input.
slash_commands: `/set` and others. session: the loop."""
