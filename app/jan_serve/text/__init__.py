"""Pure text machinery that works on streams: incremental UTF-8, stop strings."""
