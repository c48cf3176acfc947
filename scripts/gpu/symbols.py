"""The dynamic symbols of a shared library, read from its file: no tool has to be installed for it."""

import ctypes
import struct

SHT_DYNSYM = 11
SYMBOL = struct.Struct("<IBBHQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")


def exported_functions(path):
    """Names of the functions that the 64-bit ELF file `path` defines for others."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [SECTION.unpack_from(data, offset + i * size) for i in range(count)]
    names = set()
    for section in sections:
        if section[1] != SHT_DYNSYM:
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], SYMBOL.size):
            name, info, _, defined_in, _, _ = SYMBOL.unpack_from(data, at)
            if defined_in != 0 and info >> 4 in (1, 2) and info & 15 in (2, 10):
                start = strings + name
                names.add(data[start:data.index(b"\0", start)].decode())
    return names


def present(path, names):
    """Those of `names` that the loader finds in the library."""
    library = ctypes.CDLL(path)
    return {name for name in names if hasattr(library, name)}
