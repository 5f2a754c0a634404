"""Images of requests as far as their bytes say it without being decoded: headers, limits, data URLs. Pure."""
