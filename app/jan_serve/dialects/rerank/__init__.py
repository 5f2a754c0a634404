"""Reranking: the routes of llama-server and Jina, Cohere's, and Text Embeddings Inference's. docs/rerank.md."""
