"""Works on BYTES of device memory for STEPS steps and prints what it comes to. usage: worker BYTES STEPS GO

Of the first half of the steps it says each; before the second half it waits until GO exists.
"""

import hashlib
import sys

import cuda

size, steps = int(sys.argv[1]), int(sys.argv[2])
device = cuda.Device()
memory = device.alloc(size)
device.set(memory, 3, size)
for step in range(steps):
    if step == steps // 2:
        cuda.say("ready")
        cuda.await_file(sys.argv[3])
    offset = step * 65536 % (size - 65536)
    device.mix(memory + offset, 16384, step, 5)
device.synchronize()
digest = hashlib.sha256()
for offset in range(0, size, 32 << 20):
    digest.update(device.read(memory + offset, min(32 << 20, size - offset)))
cuda.say(digest.hexdigest())
