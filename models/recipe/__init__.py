"""Makes the built-in model ``jan-tiny`` from nothing: corpus, tokenizer, training, GGUF export, evaluation."""
