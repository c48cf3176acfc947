"""A network of given bandwidth and delay between interfaces of this network namespace, whose other ends are in nodes: frames of
each are held back and then sent to whom they are for. Run as a program it takes commands on its input, one JSON object a line,
and answers each with a line.

    {"ports": {NAME: INTERFACE}}   connects them; the first command
    {"rate": BITS, "delay": S}     of all ports, from now on; a rate of 0: as fast as it goes
    {"cut": [NAME, ...]}           those hear nothing and are not heard any more; [] joins all again
"""

import heapq
import json
import os
import select
import socket
import sys
import time

ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32
BUFFER_BYTES = 32 << 20
QUEUE_SECONDS = 0.1  # of what waits for a port's bandwidth; more is lost, as in any switch
BROADCAST = 1  # bit of the first byte of an address


class Port:
    def __init__(self, name, interface):
        self.name = name
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        for option in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
            self.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self.socket.bind((interface, 0))
        self.socket.setblocking(False)
        self.free_at = 0.0
        self.cut = False


class Wire:
    def __init__(self):
        self.ports = []
        self.places = {}  # port by address
        self.rate, self.delay = 0, 0.0
        self.waiting = []  # (when, number, frame, port it came from)
        self.number = 0

    def command(self, fields):
        if "ports" in fields:
            self.ports = [Port(name, interface) for name, interface in fields["ports"].items()]
        self.rate = fields.get("rate", self.rate)
        self.delay = fields.get("delay", self.delay)
        if "cut" in fields:
            for port in self.ports:
                port.cut = port.name in fields["cut"]

    def take(self, port, now):
        for _ in range(64):
            try:
                frame = port.socket.recv(65600)
            except BlockingIOError:
                return
            self.places[frame[6:12]] = port
            begin = max(now, port.free_at)
            if port.cut or begin - now > QUEUE_SECONDS:
                continue
            port.free_at = begin + (len(frame) * 8 / self.rate if self.rate else 0)
            self.number += 1
            heapq.heappush(self.waiting, (port.free_at + self.delay, self.number, frame, port))

    def deliver(self, now):
        while self.waiting and self.waiting[0][0] <= now:
            _, _, frame, source = heapq.heappop(self.waiting)
            target = None if frame[0] & BROADCAST else self.places.get(frame[:6])
            for port in [target] if target else self.ports:
                if port is source or port.cut or source.cut:
                    continue
                try:
                    port.socket.send(frame)
                except OSError:
                    pass  # the node's end is gone or full: the frame is lost

    def run(self, commands):
        commands_left = b""
        while True:
            now = time.monotonic()
            timeout = max(0.0, self.waiting[0][0] - now) if self.waiting else None
            ready, _, _ = select.select([commands, *(port.socket for port in self.ports)], [], [], timeout)
            now = time.monotonic()
            self.deliver(now)
            for port in self.ports:
                if port.socket in ready:
                    self.take(port, now)
            if commands in ready:
                data = os.read(commands, 65536)
                if not data:
                    return
                *lines, commands_left = (commands_left + data).split(b"\n")
                for line in lines:
                    self.command(json.loads(line))
                    os.write(1, b"ok\n")


if __name__ == "__main__":
    Wire().run(0)
    sys.exit(0)
