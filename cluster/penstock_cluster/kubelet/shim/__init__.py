"""The process between the kubelet and its containers, as containerd-shim is for containerd.

One per cluster. It starts containers, writes their logs, watches their memory and reaps them. It
exists so that no process outlives the cluster: when the kubelet's end of the socket closes, for
whatever reason, ``kill -9`` included, it kills everything it started and goes. Should it be killed
itself, the kernel kills the containers' main processes (PR_SET_PDEATHSIG).

Standard library only: it is started without ``site``, to be small (10 MB) and up in 30 ms.
"""
