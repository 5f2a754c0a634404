"""Helper processes: what a request may make slow, large or fatal is done where it can be ended.

Each kind of work has a module with its requests and limits, which both ends import (`rendering`, `compiling`, `media`,
`headers`), and one of the same name in `work`, which does it in the process. `pool` is the server's end, `child` the
process's.
"""
