"""Which calls of an unmodified program's steps data workers can make, found, proven and moved.

The second way, beside `penstock.data.offloading`, for a program that declares nothing. Tensors of a
batch are handed out as `observation.deferred.Deferred`, which tell a step of each call that the
program makes with them; no mode is set, so that all else computes as if nobody looked.
`observation.record` is a step that writes them down, `plan` chooses what moves, `prefix` is that as
a value that travels, `replay` is a step that matches calls with the record and gives what came, and
`loader_steps` sees to it that nothing is used before it was compared.
"""
