"""The worker process: llama.cpp, continuous batching, sampling. Imported by nothing but its own entry (`worker`)."""
