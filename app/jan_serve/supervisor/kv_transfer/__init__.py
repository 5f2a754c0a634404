"""States of sequences between servers: what is kept for others, links to peers, and the way over TCP."""
