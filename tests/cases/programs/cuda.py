"""The CUDA driver for programs of these tests, by ctypes as Python's own bindings do it."""

import ctypes
import os
import sys

DRIVER = ctypes.CDLL("libcuda.so.1")

# cells[i] = cells[i] * 1664525 + seed + i, turn for turn.
MIX = b"""
.version 7.5
.target sm_75
.address_size 64
.visible .entry mix(.param .u64 cells, .param .u32 count, .param .u32 seed, .param .u32 turns)
{
  .reg .pred %p<3>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [cells];
  ld.param.u32 %r1, [count];
  ld.param.u32 %r2, [seed];
  ld.param.u32 %r3, [turns];
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %ntid.x;
  mov.u32 %r6, %tid.x;
  mad.lo.s32 %r7, %r4, %r5, %r6;
  setp.ge.u32 %p1, %r7, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r7, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r8, [%rd4];
TURN:
  mul.lo.s32 %r9, %r8, 1664525;
  add.s32 %r10, %r9, %r2;
  add.s32 %r8, %r10, %r7;
  sub.s32 %r3, %r3, 1;
  setp.gt.s32 %p2, %r3, 0;
  @%p2 bra TURN;
  st.global.u32 [%rd4], %r8;
DONE:
  ret;
}
"""


class CudaError(Exception):
    def __init__(self, name, code):
        super().__init__(f"{name}: {code}")
        self.code = code


def call(name, *arguments):
    code = getattr(DRIVER, name)(*arguments)
    if code != 0:
        raise CudaError(name, code)


def pointer(value):
    return ctypes.c_void_p(value)


class Device:
    """A device's primary context, current in the calling thread, and the kernel above."""

    def __init__(self, ordinal=0):
        call("cuInit", 0)
        self.device = ctypes.c_int()
        self.context = ctypes.c_void_p()
        call("cuDeviceGet", ctypes.byref(self.device), ordinal)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.enter()
        module = ctypes.c_void_p()
        self.mix_kernel = ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), MIX)
        call("cuModuleGetFunction", ctypes.byref(self.mix_kernel), module, b"mix")

    def enter(self):
        call("cuCtxSetCurrent", self.context)

    def alloc(self, size):
        memory = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        return memory.value

    def free(self, memory):
        call("cuMemFree_v2", pointer(memory))

    def write(self, memory, data):
        call("cuMemcpyHtoD_v2", pointer(memory), data, ctypes.c_size_t(len(data)))

    def read(self, memory, size):
        data = ctypes.create_string_buffer(size)
        call("cuMemcpyDtoH_v2", data, pointer(memory), ctypes.c_size_t(size))
        return data.raw

    def set(self, memory, byte, size):
        call("cuMemsetD8_v2", pointer(memory), byte, ctypes.c_size_t(size))

    def stream(self):
        stream = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(stream), 1)  # CU_STREAM_NON_BLOCKING
        return stream

    def mix(self, memory, count, seed, turns=1, stream=None):
        values = [ctypes.c_uint64(memory), ctypes.c_uint32(count), ctypes.c_uint32(seed), ctypes.c_uint32(turns)]
        addresses = (ctypes.c_void_p * 4)(*(ctypes.cast(ctypes.byref(value), ctypes.c_void_p).value for value in values))
        call("cuLaunchKernel", self.mix_kernel, (count + 127) // 128, 1, 1, 128, 1, 1, 0, stream, addresses, None)

    @staticmethod
    def synchronize():
        call("cuCtxSynchronize")


def say(text):
    """One write, so that lines of several threads stay whole."""
    os.write(sys.stdout.fileno(), (text + "\n").encode())


def await_file(path):
    """Until the file exists. Its folder is watched, so that nothing is polled."""
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(os.O_CLOEXEC)
    in_create, in_moved_to = 0x100, 0x80
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(os.path.dirname(path)), in_create | in_moved_to) < 0:
        raise OSError(f"watch the folder of {path}")
    try:
        while not os.path.exists(path):
            os.read(watch, 4096)
    finally:
        os.close(watch)
