"""Pure text processing: incremental UTF-8, stop strings, markers, and the watermark."""
