"""OpenAI's API as Jan 0.3.14 serves it, with Jan's /extras and the routes of llama-server that editors use."""
