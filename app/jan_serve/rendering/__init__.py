"""The process that renders chat templates: code from untrusted files, run where it can be ended."""
