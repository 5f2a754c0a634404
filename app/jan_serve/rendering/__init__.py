"""The process that renders chat templates: they are code from untrusted files, so they run in a process that can be
killed."""
