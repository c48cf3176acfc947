"""The dynamic symbols of a shared library, read from its file: no tool has to be installed for it."""

import ctypes
import struct

SHT_DYNSYM, SHT_DYNAMIC = 11, 6
DT_NULL, DT_SYMBOLIC, DT_FLAGS, DF_SYMBOLIC = 0, 16, 30, 2
SYMBOL = struct.Struct("<IBBHQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")


def read_sections(path):
    """The 64-bit ELF file and its sections."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    return data, [SECTION.unpack_from(data, offset + i * size) for i in range(count)]


def bound_to_itself(path):
    """Whether the library's own calls of what it exports stay inside, whatever else is loaded."""
    data, sections = read_sections(path)
    for section in sections:
        if section[1] != SHT_DYNAMIC:
            continue
        for at in range(section[4], section[4] + section[5], 16):
            tag, value = struct.unpack_from("<QQ", data, at)
            if tag == DT_NULL:
                break
            if tag == DT_SYMBOLIC or (tag == DT_FLAGS and value & DF_SYMBOLIC):
                return True
    return False


def exported_functions(path):
    """Names of the functions that the 64-bit ELF file `path` defines for others."""
    data, sections = read_sections(path)
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
