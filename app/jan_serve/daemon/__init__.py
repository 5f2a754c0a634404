"""jan-serve as a background service of systemd, launchd or Windows.
systemd, launchd, windows: pure; render the service manager's files and commands as a plan. executor: the only module
that writes files and runs commands. activation, notify, idle_stop, win_service: used by the running service."""
