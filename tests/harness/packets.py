"""Network interfaces whose packets a program reads: they must be whole."""

import contextlib
import ctypes
import fcntl
import socket
import struct

SIOCETHTOOL = 0x8946
# Set to off: what a network card would finish (checksums, segments), which no card does for a program.
TRANSMIT_CHECKSUMS, SCATTER_GATHER, TSO, GSO, GRO = 0x17, 0x19, 0x1f, 0x24, 0x2c


def finish(interface):
    """Packets leave `interface` of this network namespace whole, with their checksums."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for command in (TSO, GSO, GRO, TRANSMIT_CHECKSUMS, SCATTER_GATHER):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sQ", interface.encode(), ctypes.addressof(value))
            with contextlib.suppress(OSError):  # what an interface does not have is off
                fcntl.ioctl(handle, SIOCETHTOOL, request)
