"""The ghost's side of base/task_protocol.h, for tests: one connection to the interposer of one process."""

import array
import contextlib
import os
import select
import socket
import struct
import time

import hung

MAGIC, VERSION = 0x4D535453, 1
HEADER = struct.Struct("=IHHIIQ")  # base/message.h
PROTOCOL_VERSION = 4
BATCH = 253
WAKE_VALUE = 0x5354415349530001
WAKE_SIGNAL = 64 - 3  # SIGRTMAX - 3

(HELLO, STATUS, CLOSE, CUT, DRAIN, HOLD, GIVE_UP, HANDOVER, ACTIVE, RELEASE, PREPARE_DUMP, ATTACH, IMPORT, REBUILD, COMMS,
 REJOIN, RESUME, SNAPSHOT_DONE, PROGRESS) = range(1, 20)
OK, ERROR = 100, 101
STATES = ["running", "quiescing", "drained", "quiesced", "released", "deaf", "attaching"]
RECONSTRUCT, DRIVER_CHECKPOINT = 0, 1
STRATEGIES = ["reconstruct", "driver-checkpoint"]
CODES = ["OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "PERMISSION_DENIED",
         "RESOURCE_EXHAUSTED", "UNAVAILABLE", "TIMEOUT", "PEER_DIED", "CORRUPT", "UNSUPPORTED", "CANCELLED", "DRIVER",
         "INTERNAL"]


class TaskError(Exception):
    """The process has answered kError."""

    def __init__(self, code, message, blockers):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.blockers = code, message, blockers


class Reader:
    """Takes a payload apart (base/payload.h)."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value, = struct.unpack_from("=" + form, self.data, self.at)
        self.at += struct.calcsize("=" + form)
        return value

    def raw(self):
        size = self.take("I")
        value = self.data[self.at:self.at + size]
        assert len(value) == size, "a string that ends beyond its payload"
        self.at += size
        return value

    def text(self):
        return self.raw().decode()

    def list(self, read):
        return [read() for _ in range(self.take("I"))]

    def finish(self):
        assert self.at == len(self.data), f"{len(self.data) - self.at} bytes left over"


def text(value):
    data = value.encode()
    return struct.pack("=I", len(data)) + data


class Extent:
    """One piece of device memory and, between handover and import, the descriptor that keeps it alive."""

    FORM = struct.Struct("=QiQQIQ")

    def __init__(self, fields, fd=-1):
        self.id, self.device, self.address, self.size, self.traits, self.share = fields
        self.fd = fd

    def packed(self):
        return self.FORM.pack(self.id, self.device, self.address, self.size, self.traits, self.share)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class TaskClient:
    """Requests raise TaskError when the process refuses them, and ConnectionError when it has hung up."""

    def __init__(self, path, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self.request_id = 0

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- messages

    def _send(self, kind, payload, fds):
        header = HEADER.pack(MAGIC, VERSION, len(fds), kind, len(payload), self.request_id)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.socket.sendmsg([header + payload], ancillary)
        rest = (header + payload)[sent:]
        if rest:  # sending nothing would fail when the process has answered and hung up already
            self.socket.sendall(rest)

    def _receive(self, size, fds):
        data = b""
        while len(data) < size:
            part, ancillary, _, _ = self.socket.recvmsg(size - len(data), socket.CMSG_SPACE(4 * BATCH),
                                                        socket.MSG_CMSG_CLOEXEC)
            for level, kind, raw in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    got = array.array("i")
                    got.frombytes(raw[:len(raw) - len(raw) % 4])
                    fds.extend(got)
            if not part:
                raise ConnectionError("the process has closed the connection")
            data += part
        return data

    def send(self, kind, payload=b""):
        """A request whose answer is left to receive()."""
        self.request_id += 1
        self._send(kind, payload, [])

    def receive(self):
        """The next answer, whatever it is: its kind and its payload."""
        fields = HEADER.unpack(self._receive(HEADER.size, []))
        return fields[3], self._receive(fields[4], [])

    def request(self, kind, payload=b"", fds=()):
        """Returns the payload of kOk and the descriptors that came with it."""
        self.request_id += 1
        self._send(kind, payload, list(fds))
        got = []
        magic, version, fd_count, answer, size, request_id = HEADER.unpack(self._receive(HEADER.size, got))
        assert (magic, version, request_id) == (MAGIC, VERSION, self.request_id)
        data = self._receive(size, got)
        assert len(got) == fd_count
        if answer == OK:
            return data, got
        assert answer == ERROR, answer
        reader = Reader(data)
        code, message = CODES[reader.take("I")], reader.text()
        blockers = reader.list(lambda: (reader.take("i"), reader.text()))
        reader.finish()
        raise TaskError(code, message, blockers)

    # ---- the requests

    def hello(self, version=PROTOCOL_VERSION):
        data, _ = self.request(HELLO, struct.pack("=I", version))
        reader = Reader(data)
        assert reader.take("I") == PROTOCOL_VERSION
        hello = {"pid": reader.take("i"), "state": STATES[reader.take("B")], "strategy": STRATEGIES[reader.take("B")],
                 "driver_path": reader.text(), "driver_version": reader.take("i"), "generation": reader.take("I"),
                 "failed": reader.text()}
        hello["taints"] = reader.list(lambda: (reader.text(), bool(reader.take("B"))))
        hello["devices"] = reader.list(lambda: {
            "virtual": reader.take("i"), "physical": reader.take("i"), "uuid": reader.raw().hex(), "name": reader.text(),
            "memory": reader.take("Q"), "compute": reader.take("I"), "used": bool(reader.take("B"))})
        reader.finish()
        return hello

    def status(self):
        reader = Reader(self.request(STATUS)[0])
        status = {"state": STATES[reader.take("B")], "threads": reader.take("I")}
        for field in ("records", "allocations", "allocated_bytes", "extents", "extent_bytes", "host_bytes", "active_bytes",
                      "low_bytes", "high_bytes", "iterations", "ignored_notes"):
            status[field] = reader.take("Q")
        reader.finish()
        return status

    def progress(self):
        """(iterations, launches)"""
        return struct.unpack("=QQ", self.request(PROGRESS)[0])

    def shut(self, deadline_ms=20000, wait_low_ms=0):
        """kClose: what the ranks have issued."""
        return cut_report(self.request(CLOSE, struct.pack("=II", deadline_ms, wait_low_ms))[0])

    def cut(self, targets=None, deadline_ms=20000, quiet_ms=20):
        """One round; `targets`: an encoded CutTargets."""
        payload = struct.pack("=II", deadline_ms, quiet_ms) + (cut_targets() if targets is None else targets)
        return cut_report(self.request(CUT, payload)[0])

    def drain(self, deadline_ms=20000):
        self.request(DRAIN, struct.pack("=I", deadline_ms))

    def hold(self):
        self.request(HOLD)

    def give_up(self):
        """Where the process was stopped."""
        reader = Reader(self.request(GIVE_UP)[0])
        stopped = {"active_bytes": reader.take("Q"), "low_bytes": reader.take("Q"), "high_bytes": reader.take("Q"),
                   "waited_ms": reader.take("I"), "at_low": bool(reader.take("B"))}
        reader.finish()
        return stopped

    def comms(self):
        """What other processes are needed for, and the ids of what has its rank 0 here."""
        reader = Reader(self.request(COMMS)[0])
        comms = reader.list(lambda: {
            "comm": reader.take("Q"), "size": reader.take("i"), "made_by": reader.text(),
            "ranks": reader.list(lambda: reader.take("i")), "id": reader.raw()})
        reader.finish()
        return comms

    def rejoin(self, ids=(), deadline_ms=20000):
        """`ids`: pairs of a communicator's key and its unique id."""
        payload = struct.pack("=II", deadline_ms, len(ids))
        self.request(REJOIN, payload + b"".join(struct.pack("=QI", key, len(data)) + data for key, data in ids))

    def active(self):
        """The active ranges: pairs of address and size."""
        ranges = []
        while True:
            reader = Reader(self.request(ACTIVE, struct.pack("=I", len(ranges)))[0])
            batch = reader.list(lambda: (reader.take("Q"), reader.take("Q")))
            reader.finish()
            if not batch:
                return ranges
            ranges += batch

    def handover(self):
        """All extents, each with a descriptor of its own. The caller closes them."""
        extents = []
        while True:
            data, fds = self.request(HANDOVER, struct.pack("=I", len(extents)))
            reader = Reader(data)
            batch = reader.list(lambda: Extent([reader.take(form) for form in "QiQQIQ"]))
            reader.finish()
            assert len(batch) == len(fds)
            for extent, fd in zip(batch, fds):
                extent.fd = fd
            if not batch:
                return extents
            extents += batch

    def release(self, strategy=RECONSTRUCT):
        self.request(RELEASE, struct.pack("=B", strategy))

    def prepare_dump(self):
        """The process hangs up after its answer."""
        self.request(PREPARE_DUMP)
        assert self.socket.recv(1) == b"", "the process went on talking"

    def attach(self, driver_path, placements=(), restored=False):
        """`placements`: pairs of a virtual and a physical ordinal."""
        payload = struct.pack("=B", restored) + text(driver_path) + struct.pack("=I", len(placements))
        self.request(ATTACH, payload + b"".join(struct.pack("=ii", *pair) for pair in placements))

    def import_extents(self, extents):
        for first in range(0, len(extents), BATCH):
            batch = extents[first:first + BATCH]
            payload = struct.pack("=I", len(batch)) + b"".join(extent.packed() for extent in batch)
            self.request(IMPORT, payload, [extent.fd for extent in batch])

    def rebuild(self):
        self.request(REBUILD)

    def resume(self, held=(), fds=()):
        """`held`: pairs of a virtual ordinal and the bytes that are kept there; `fds`: two eventfds then."""
        payload = struct.pack("=I", len(held)) + b"".join(struct.pack("=iQ", *pair) for pair in held)
        self.request(RESUME, payload, fds)

    def snapshot_done(self):
        self.request(SNAPSHOT_DONE)

    # ---- the whole way there and back, of a process that needs no other one

    def quiesce(self, deadline_ms=20000, wait_low_ms=0):
        """Running -> Quiesced. Where the process was stopped."""
        return self.stand_still(self.shut(deadline_ms, wait_low_ms), deadline_ms)

    def stand_still(self, report, deadline_ms=20000):
        """Quiescing -> Quiesced, after shut()."""
        end = time.monotonic() + deadline_ms / 1000
        while True:
            self.find_cut(report, end)
            try:
                self.drain(left_ms(end))
                return self.give_up()
            except TaskError as error:
                if error.code != "UNAVAILABLE":
                    raise
            report = self.shut(left_ms(end))

    def find_cut(self, report, end):
        moved = time.monotonic()
        while not report["settled"]:
            now = time.monotonic()
            if now >= end:
                missing = report["missing"]
                raise TaskError("TIMEOUT", f"NCCL: {missing[0][1] if missing else 'something'} is missing", missing)
            admit_all = now - moved > 0.1
            last, report = report, self.cut(cut_targets(admit_all), left_ms(end))
            if admit_all or report["events"] != last["events"]:
                moved = time.monotonic()

    def rejoin_alone(self):
        self.rejoin([(comm["comm"], comm["id"]) for comm in self.comms()])

    def go_on(self, held=(), fds=()):
        """Wherever a pause has come to before the release -> Running; see resume()."""
        if self.hello()["state"] == "quiesced":
            self.rejoin_alone()
        self.resume(held, fds)

    def pause(self, strategy=RECONSTRUCT, deadline_ms=20000):
        """Running -> Released. Returns the extents."""
        self.quiesce(deadline_ms)
        extents = self.handover()
        try:
            self.release(strategy)
        except Exception:
            for extent in extents:
                extent.close()
            raise
        return extents

    def unpause(self, extents, driver_path, placements=(), restored=False):
        """Released -> Running, with everything that was handed over. Closes the descriptors."""
        self.attach(driver_path, placements, restored)
        self.import_extents(extents)
        self.rebuild()
        self.rejoin_alone()
        self.resume()
        for extent in extents:
            extent.close()


def left_ms(end):
    return max(0, round((end - time.monotonic()) * 1000))


def cut_targets(admit_all=False):
    """An encoded CutTargets that names nothing."""
    return struct.pack("=IIBIIB", 0, 0, 0, 0, 0, admit_all)


def cut_report(data):
    """Decodes a CutReport (base/rank_protocol.h)."""
    reader = Reader(data)

    def peers():
        return dict(reader.list(lambda: (reader.take("i"), reader.take("Q"))))

    report = {"settled": bool(reader.take("B")), "events": reader.take("I")}
    report["ranks"] = reader.list(lambda: {
        "comm": reader.take("Q"), "size": reader.take("i"), "rank": reader.take("i"), "made_by": reader.text(),
        "collectives": reader.take("Q"), "sends": peers(), "receives": peers(), "over": bool(reader.take("B")),
        "windows": reader.take("I")})
    report["meetings"] = reader.list(lambda: reader.take("Q"))
    report["making"] = bool(reader.take("B"))
    report["used"] = reader.list(lambda: reader.take("Q"))
    report["missing"] = reader.list(lambda: (reader.take("i"), reader.text()))
    reader.finish()
    return report


def socket_path(task_folder, pid):
    return os.path.join(task_folder, "ctl", f"{pid}.sock")


@contextlib.contextmanager
def _inotify(folder):
    import ctypes  # pylint: disable=import-outside-toplevel
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    in_create, in_moved_to = 0x100, 0x80
    if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(folder), in_create | in_moved_to) < 0:
        raise OSError(ctypes.get_errno(), f"watch {folder}")
    try:
        yield fd
    finally:
        os.close(fd)


def wait_for_task(task_folder, pid, timeout=120):
    """Waits until the process has made its first CUDA call, and connects to it. The folder must exist."""
    path = socket_path(task_folder, pid)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    give_up = time.monotonic() + timeout
    with _inotify(os.path.dirname(path)) as events, open(os.pidfd_open(pid), "rb") as process:
        while True:
            try:
                return TaskClient(path)
            except (FileNotFoundError, ConnectionRefusedError):
                bound = os.path.exists(path)
            # A socket is bound before it listens: then the next connection attempt is not far away.
            ready, _, _ = select.select([events, process], [], [], 0 if bound else max(0, give_up - time.monotonic()))
            if process in ready:
                raise ChildProcessError(f"process {pid} has ended without listening")
            if time.monotonic() > give_up:
                hung.tell_of_test()
                raise TimeoutError(f"process {pid} has not made a CUDA call in {timeout} s")
            if events in ready:
                os.read(events, 4096)


def wake(pid):
    """Makes a deaf process listen again."""
    import ctypes  # pylint: disable=import-outside-toplevel
    libc = ctypes.CDLL(None, use_errno=True)
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="ascii") as comm:
            if comm.read().strip() != "stasis-control":
                continue
        info = bytearray(128)  # siginfo_t: signo, errno, code, padding, pid, uid, value
        struct.pack_into("=iiiiiiQ", info, 0, WAKE_SIGNAL, 0, -1, 0, os.getpid(), os.getuid(), WAKE_VALUE)
        sys_rt_tgsigqueueinfo = 297
        if libc.syscall(sys_rt_tgsigqueueinfo, pid, int(tid), WAKE_SIGNAL, bytes(info)) != 0:
            raise OSError(ctypes.get_errno(), "wake the control thread")
        return
    raise LookupError(f"process {pid} has no control thread")
