"""Ends in one of many ways once GO exists, with memory, a pool, a graph and streams that nobody has destroyed.

usage: ends WAY GO
"""

import ctypes
import os
import signal
import sys
import threading

import cuda

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started us may have had it ignored
device = cuda.Device()
memory = device.alloc(3 << 20)
device.set(memory, 1, 3 << 20)
stream = device.stream()
pooled, graph, executable = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
cuda.call("cuMemAllocAsync", ctypes.byref(pooled), ctypes.c_size_t(1 << 20), stream)
cuda.call("cuStreamBeginCapture_v2", stream, 0)
device.mix(memory, 1000, 3, 1, stream)
cuda.call("cuStreamEndCapture", stream, ctypes.byref(graph))
cuda.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
cuda.call("cuGraphLaunch", executable, stream)
threading.Thread(target=threading.Event().wait, daemon=True).start()
cuda.say("ready")
cuda.await_file(sys.argv[2])
cuda.call("cuGraphLaunch", executable, stream)
cuda.call("cuStreamSynchronize", stream)
way = sys.argv[1]
if way == "exit":
    sys.exit(5)
if way == "_exit":
    os._exit(6)
if way == "exception":
    raise ValueError("nobody catches this")
if way == "abort":
    os.abort()
if way == "exec":
    os.execv("/bin/sh", ["sh", "-c", "exit 8"])
if way == "destroy":
    cuda.call("cuGraphExecDestroy", executable)
    cuda.call("cuMemFreeAsync", pooled, stream)
    cuda.call("cuStreamDestroy_v2", stream)
    cuda.call("cuMemFree_v2", cuda.pointer(memory))
    cuda.call("cuDevicePrimaryCtxRelease_v2", device.device)
if way == "signal":
    os.kill(os.getpid(), signal.SIGUSR1)
if way == "wait":
    signal.pause()
