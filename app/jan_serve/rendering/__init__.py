"""The helper process that renders chat templates, which are code from untrusted files."""
