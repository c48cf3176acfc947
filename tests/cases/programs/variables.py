"""Variables of a module: one that a kernel writes, one in constant memory and one that the host writes, and one that is only
reached by a pointer in another. usage: variables GO
"""

import ctypes
import struct
import sys

import cuda

CODE = b"""
.version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 by_kernel = 5;
.visible .const .align 4 .u32 factors[4] = {1, 2, 3, 4};
.visible .global .align 4 .u32 by_host = 0;
.visible .global .align 4 .u32 far = 9;
.visible .global .align 8 .u64 pointer = 0;
.global .align 4 .u32 unnamed = 11;
.visible .entry step()
{
  .reg .b32 %r<9>;
  .reg .b64 %rd<3>;
  ld.global.u32 %r1, [by_kernel];
  ld.const.u32 %r2, [factors+4];
  ld.global.u32 %r3, [by_host];
  ld.global.u32 %r4, [unnamed];
  mad.lo.s32 %r5, %r1, %r2, %r3;
  add.s32 %r6, %r5, %r4;
  st.global.u32 [by_kernel], %r6;
  mad.lo.s32 %r7, %r4, 3, %r6;
  st.global.u32 [unnamed], %r7;
  ld.global.u64 %rd1, [pointer];
  ld.global.u32 %r8, [%rd1];
  add.s32 %r8, %r8, %r6;
  st.global.u32 [%rd1], %r8;
  ret;
}
"""


def main():
    device = cuda.Device()
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.call("cuModuleLoadData", ctypes.byref(module), CODE)
    cuda.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"step")

    def address(name):
        found, size = ctypes.c_uint64(), ctypes.c_size_t()
        cuda.call("cuModuleGetGlobal_v2", ctypes.byref(found), ctypes.byref(size), module, name)
        return found.value

    def step():
        cuda.call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)

    device.write(address(b"by_host"), struct.pack("=I", 1000))
    device.write(address(b"factors"), struct.pack("=4I", 7, 17, 27, 37))
    device.write(address(b"pointer"), struct.pack("=Q", address(b"far")))
    before = [address(name) for name in (b"by_kernel", b"by_host", b"far", b"pointer", b"factors")]
    for _ in range(3):
        step()
    device.synchronize()
    cuda.say("ready")
    cuda.await_file(sys.argv[1])
    same = before == [address(name) for name in (b"by_kernel", b"by_host", b"far", b"pointer", b"factors")]
    for _ in range(3):
        step()
    values = [device.read(address(name), 4).hex() for name in (b"by_kernel", b"by_host", b"far", b"factors")]
    cuda.say(f"{same} {values} {struct.unpack('=Q', device.read(address(b'pointer'), 8))[0] == address(b'far')}")


main()
