"""What outlives the server: background answers, files and batches, in one SQLite file."""
