"""The kubelet of the embedded cluster: pods as processes of this machine, images ignored.

:mod:`kubelet` observes pods and nodes and keeps one :mod:`worker` per pod; the worker prepares the
pod's folders (:mod:`volumes`, :mod:`mounts`) and environment (:mod:`environment`), runs its
containers (:mod:`container`) through the :mod:`runtime`, and reports (:mod:`status`). Nothing is
exported from here: the :mod:`shim`, a process of its own, imports this package and must stay small.
"""
