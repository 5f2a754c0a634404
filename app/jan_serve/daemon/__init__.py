"""jan-serve as a background service of systemd, launchd or Windows.

systemd, launchd, windows: pure renderers of what the service manager reads and of the commands that it gets. machine:
the only part that writes files and runs commands. activation, notify: what a started service has from its manager.
"""
