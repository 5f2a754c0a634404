"""Chats that the server keeps, for the page and the terminal."""
