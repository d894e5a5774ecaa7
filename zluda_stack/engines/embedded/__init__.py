"""The embedded engine: a real llama.cpp server and the endpoint as local processes.

engine      up, down, status, logs: the short-lived command; talks through files and signals
supervisor  the background process that owns one stack's processes
inference   the process that loads the model and computes
tether      ends a process with its supervisor
commands    the command lines of these processes
state       the files of a stack
status      what is true of a stack now
stopping    how a stack is stopped, whatever state it was left in
"""
