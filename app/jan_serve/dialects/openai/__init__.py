"""OpenAI's API as Jan 0.3.14 serves it (llama-cpp-python's server): /v1/* and /extras/* at the root.

Errors have the server's default body (`dialects.shared.default_error_body`). `jan_extras` holds the routes that Jan's
server adds, `llama_server` those that editors use.
"""
