#!/usr/bin/env python3
"""What a process that does not answer is doing, for the output of a test: its threads, and their stacks where gdb is there.

hung.py PID                      of the process and those it has started
hung.py --limit SECONDS COMMAND  runs the command; past the limit, tells that of it, ends it and fails
"""

import os
import select
import signal
import sys

GDB_SECONDS = 30


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def with_descendants(pid):
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


def stacks(pid):
    """By gdb, or "" where there is none or it may not look."""
    # Here and not above: most tests that are started through this file never come here, and each pays for its start.
    import shutil  # pylint: disable=import-outside-toplevel
    import subprocess  # pylint: disable=import-outside-toplevel
    if shutil.which("gdb") is None:
        return ""
    command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set width 0", "-ex", "set debuginfod enabled off",
               "-ex", "thread apply all backtrace 24"]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                timeout=GDB_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace")
    lines = result.stdout.decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if line.startswith(("#", "Thread ")))


def describe(pid):
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
    return "\n".join([*lines, stacks(pid)])


def tell(pid):
    for each in with_descendants(pid):
        print(describe(each), flush=True)


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
    # Helpers of the tests ask for the same of the processes that they wait for.
    environment = {**os.environ, "STASIS_HUNG": os.path.abspath(__file__)}
    program = os.posix_spawnp(command[0], command, environment)
    code = ended(program, limit)
    if code is not None and code < 0:
        print(f"==== ended by {signal.Signals(-code).name}: {' '.join(command)}", flush=True)
        return 128 - code
    if code is not None:
        return code
    print(f"==== not done after {limit:g} s: {' '.join(command)}", flush=True)
    tell(program)
    everyone = with_descendants(program)
    # Python says where it stands; whatever else does, it is ended.
    os.kill(program, signal.SIGABRT)
    dead = ended(program, 5) is not None
    end(everyone[1:] if dead else everyone)
    return 1


def main(arguments):
    if len(arguments) > 2 and arguments[0] == "--limit":
        return run(float(arguments[1]), arguments[2:])
    if len(arguments) == 1 and arguments[0].isdigit():
        return tell(int(arguments[0]))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
