#!/usr/bin/env python3
"""What processes that do not answer are doing, for the output of a test: their threads, and stacks where gdb is there.

hung.py PID                      of the process and those it has started
hung.py --limit SECONDS COMMAND  runs a test; past the limit, tells that of all its processes, ends them and fails
"""

import contextlib
import os
import select
import signal
import sys
import time

MARK = "STASIS_TEST_RUN"  # in the environment of all that a test starts, however it is detached
GDB_SECONDS = 60  # for all processes together


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def descendants(pid):
    """With the process itself."""
    pids = [pid]
    for parent in pids:
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            children = read(f"/proc/{parent}/task/{thread}/children").split()
            pids += [int(child) for child in children if child.isdigit()]
    return pids


def of_test():
    """All processes of the test that this one belongs to, itself left out."""
    mark = f"{MARK}={os.environ.get(MARK, '')}"
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in sorted(pids) if pid != os.getpid() and mark in read(f"/proc/{pid}/environ").split(" ")]


def stacks(pid, end):
    """By gdb, or "" where there is none or it may not look."""
    # Here and not above: most tests that are started through this file never come here, and each pays for its start.
    import shutil  # pylint: disable=import-outside-toplevel
    import subprocess  # pylint: disable=import-outside-toplevel
    left = end - time.monotonic()
    if shutil.which("gdb") is None or left <= 0:
        return ""
    command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set width 0", "-ex", "set debuginfod enabled off",
               "-ex", "thread apply all backtrace 24"]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return ""
    lines = result.stdout.decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if line.startswith(("#", "Thread ")))


def states(pid):
    lines = [f"---- process {pid}: {read(f'/proc/{pid}/cmdline')}"]
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return lines[0] + ": has ended"
    for thread in threads:
        path = f"/proc/{pid}/task/{thread}"
        state = read(f"{path}/stat").rpartition(")")[2].split()[:1]
        lines.append(f"thread {thread} {read(path + '/comm')}: {''.join(state)}, in {read(path + '/wchan')}, "
                     f"system call {read(path + '/syscall')}")
    return "\n".join(lines)


def tell(pids):
    # All states first: taking stacks takes long, and who is told of stands still meanwhile.
    for pid in pids:
        print(states(pid), flush=True)
    end = time.monotonic() + GDB_SECONDS
    for pid in pids:
        print(f"---- stacks of {pid}:\n{stacks(pid, end)}", flush=True)


def tell_of_test():
    tell(of_test())


def run_within(timeout, command, **options):
    """subprocess.run for tests: a command that takes too long is told of before it is ended."""
    import subprocess  # pylint: disable=import-outside-toplevel
    with subprocess.Popen(command, **options) as program:
        try:
            output, errors = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            tell_of_test()
            program.kill()
            raise
    return subprocess.CompletedProcess(command, program.returncode, output, errors)


@contextlib.contextmanager
def started(command, **options):
    """subprocess.Popen for tests, to be left when it has ended: where what is done meanwhile fails, nothing might end it."""
    import subprocess  # pylint: disable=import-outside-toplevel
    with subprocess.Popen(command, **options) as program:
        try:
            yield program
        except BaseException:
            program.kill()
            raise


def await_state(pid, state, seconds=60):
    """Until that is its state in /proc/PID/stat, as T of one that was stopped: only its parent is told."""
    give_up = time.monotonic() + seconds
    while read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] != [state]:
        if time.monotonic() > give_up:
            tell_of_test()
            raise AssertionError(f"process {pid} is not in state {state} after {seconds} s")
        time.sleep(0.01)


def await_readable(descriptor, timeout):
    """Whether it became so; when not, what everybody was doing has been told."""
    readable, _, _ = select.select([descriptor], [], [], timeout)
    if not readable:
        tell_of_test()
    return bool(readable)


def ended(pid, seconds):
    """Its exit code, or minus the signal; None when it takes longer."""
    process = os.pidfd_open(pid)
    done, _, _ = select.select([process], [], [], seconds)
    os.close(process)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if done else None


def end(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(limit, command):
    os.environ[MARK] = f"{os.getpid()}.{time.monotonic_ns()}"
    # Helpers of the tests ask for the same of the processes that they wait for.
    os.environ["STASIS_HUNG"] = os.path.abspath(__file__)
    program = os.posix_spawnp(command[0], command, os.environ)
    code = ended(program, limit)
    if code is not None and code < 0:
        print(f"==== ended by {signal.Signals(-code).name}: {' '.join(command)}", flush=True)
        return 128 - code
    if code is not None:
        return code
    print(f"==== not done after {limit:g} s: {' '.join(command)}", flush=True)
    tell_of_test()
    # Python says where it stands; whatever else does, it is ended.
    os.kill(program, signal.SIGABRT)
    if ended(program, 5) is None:
        os.kill(program, signal.SIGKILL)
    end(of_test())
    return 1


def main(arguments):
    if len(arguments) > 2 and arguments[0] == "--limit":
        return run(float(arguments[1]), arguments[2:])
    if len(arguments) == 1 and arguments[0].isdigit():
        return tell(descendants(int(arguments[0])))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
