"""jan-serve as a background service of systemd, launchd or Windows.
systemd, launchd, windows: pure; render the service manager's files and commands as a plan. plan: what a plan is, and
its execution, the only code that writes files and runs commands. running: used by the running service."""
