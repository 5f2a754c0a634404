"""Helper processes: what a request may make slow, large or fatal is done where it can be ended.

`kinds` has their requests and limits, `work` what they do; `pool` is the server's end, `child` the process's.
"""
