"""Sound of requests as far as its bytes say it without being decoded: headers and limits. Pure."""
