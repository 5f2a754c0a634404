"""Servers of one proxy that Ray places on machines, restarts and scales. No request and no token passes through Ray."""
