"""Asks a CUDA driver for its version and its devices, in a process of its own as a driver may take the process along.

usage: look.py DRIVER    DRIVER: the path of libcuda.so.1; prints JSON: {"version": 13000, "devices": [{"name", "uuid", "memory", ...}]}
"""

import ctypes
import json
import sys

# CUdevice_attribute
ATTRIBUTES = {"capability_major": 75, "capability_minor": 76, "compute_mode": 20, "integrated": 18, "multi_gpu_board": 84,
              "pageable_memory_access": 88, "concurrent_managed_access": 89, "host_pointer_for_registered_memory": 91,
              "virtual_memory_management": 102, "posix_descriptors": 103, "fabric_handles": 128, "multicast": 132, "mps": 133}


def main():
    driver = ctypes.CDLL(sys.argv[1])

    def call(name, *arguments):
        result = getattr(driver, name)(*arguments)
        if result != 0:
            sys.exit(f"{name}: error {result}")

    def number(name, *arguments, kind=ctypes.c_int):
        value = kind()
        call(name, ctypes.byref(value), *arguments)
        return value.value

    answer = {"version": number("cuDriverGetVersion"), "devices": []}
    call("cuInit", 0)
    for ordinal in range(number("cuDeviceGetCount")):
        device = number("cuDeviceGet", ordinal)
        name, uuid, bus = (ctypes.create_string_buffer(size) for size in (256, 16, 32))
        call("cuDeviceGetName", name, 256, device)
        call("cuDeviceGetUuid_v2", uuid, device)
        call("cuDeviceGetPCIBusId", bus, 32, device)
        attributes = {}
        for what, which in ATTRIBUTES.items():
            value = ctypes.c_int()
            # One that is newer than the driver is left out.
            if driver.cuDeviceGetAttribute(ctypes.byref(value), which, device) == 0:
                attributes[what] = value.value
        answer["devices"].append({"name": name.value.decode(), "uuid": uuid.raw.hex(), "pci": bus.value.decode(),
                                  "memory": number("cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t), "attributes": attributes})
    print(json.dumps(answer))


main()
