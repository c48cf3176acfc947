"""What an agent tells of jobs, and how it ends: over its unix socket, with jobs that need no device."""

import signal
import threading
import unittest
import urllib.request

from agents import ENDED, OperationFailed, grpc, op, pb
from softgpu import Node
from stasisd import Stasisd


class Service(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.node = Node()
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__, None, None, None)

    def start(self, *options):
        env = self.node.env()
        env.pop("LD_LIBRARY_PATH", None)
        stasisd = Stasisd(*options, env=env)
        stasisd.__enter__()
        self.addCleanup(stasisd.__exit__)
        self.addCleanup(self.end_jobs, stasisd)
        return stasisd

    def end_jobs(self, stasisd):
        if stasisd.process.poll() is not None:
            stasisd.start()
        for name, job in stasisd.agent.jobs().items():
            if job.live:
                try:
                    stasisd.agent.call("cancel", job=name, grace_ms=1)
                except OperationFailed:  # it has ended by itself meanwhile
                    stasisd.agent.wait_for_job(name, lambda job: not job.live)

    def run_shell(self, stasisd, name, script, **fields):
        stasisd.agent.call("run", name=name, argv=["/bin/sh", "-c", script], environment=["PATH=/usr/bin:/bin"], folder="/tmp",
                           device="soft", **fields)

    def test_a_job_is_told_of_from_its_start_to_its_end(self):
        stasisd = self.start()
        events = []
        begun, ended = threading.Event(), threading.Event()

        def watch():
            for event in stasisd.agent.stub.Watch(pb.WatchRequest(), timeout=120):
                events.append(event)
                begun.set()
                if event.HasField("job") and event.job.condition == pb.CONDITION_EXITED:
                    break
            ended.set()

        thread = threading.Thread(target=watch)
        thread.start()
        self.addCleanup(thread.join)
        self.assertTrue(begun.wait(120))
        self.run_shell(stasisd, "short", "echo one; echo two; exit 3")
        self.assertTrue(ended.wait(120))
        self.assertTrue(events[0].caught_up and events[0].complete)
        self.assertEqual(events[-1].job.exit_code, 3)
        revisions = [event.revision for event in events]
        self.assertEqual(revisions, sorted(revisions))
        self.assertEqual(stasisd.agent.output("short"), "one\ntwo\n")

    def test_a_watch_goes_on_where_another_one_ended(self):
        stasisd = self.start()
        self.run_shell(stasisd, "first", "exit 0")
        stasisd.agent.wait_for_job("first", lambda job: job.condition == pb.CONDITION_EXITED)
        stream = stasisd.agent.stub.Watch(pb.WatchRequest(), timeout=60)
        after = next(event.revision for event in stream if event.caught_up)
        stream.cancel()
        stasisd.agent.call("remove", job="first")
        self.run_shell(stasisd, "second", "exit 0")
        told = {}
        for event in stasisd.agent.stub.Watch(pb.WatchRequest(after_revision=after), timeout=60):
            if event.caught_up:
                self.assertFalse(event.complete)
            else:
                told[event.job.name] = event.job.gone
            if set(told) == {"first", "second"}:
                break
        self.assertEqual(told, {"first": True, "second": False})

    def test_logs_are_followed_to_the_end(self):
        stasisd = self.start()
        # 200 KiB in pieces, the last of them after the follower waits.
        self.run_shell(stasisd, "talker", "i=0; while [ $i -lt 200 ]; do head -c 1024 /dev/zero | tr '\\0' x; i=$((i+1)); done; "
                       "sleep 1; echo end")
        data = b"".join(chunk.data for chunk in
                        stasisd.agent.stub.Logs(pb.LogsRequest(name="talker", follow=True), timeout=120))
        self.assertEqual(data, b"x" * (200 << 10) + b"end\n")
        tail = b"".join(chunk.data for chunk in
                        stasisd.agent.stub.Logs(pb.LogsRequest(name="talker", offset=200 << 10), timeout=60))
        self.assertEqual(tail, b"end\n")

    def test_one_key_is_one_operation(self):
        stasisd = self.start()
        change = pb.Change(idempotency_key="once")
        fields = {"name": "once", "argv": ["/bin/sleep", "1000"], "folder": "/tmp", "device": "soft", "change": change}
        first = stasisd.agent.begin("run", **fields)
        again = stasisd.agent.begin("run", **fields)
        self.assertEqual(first.id, again.id)
        stasisd.agent.finish(first)
        with self.assertRaises(grpc.RpcError) as failed:
            stasisd.agent.begin("run", **{**fields, "name": "twice"})
        self.assertEqual(failed.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(list(stasisd.agent.jobs()), ["once"])

    def test_a_signal_reaches_the_program(self):
        stasisd = self.start()
        self.run_shell(stasisd, "trap", "trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
        stasisd.agent.wait_for_output("trap", "ready")
        answer = stasisd.agent.stub.Signal(pb.SignalRequest(job="trap", signal=signal.SIGUSR1), timeout=60)
        self.assertFalse(answer.paused)
        job = stasisd.agent.wait_for_job("trap", lambda job: job.condition == pb.CONDITION_EXITED)
        self.assertEqual(job.exit_code, 5)
        self.assertIn("got it", stasisd.agent.output("trap"))

    def test_devices_say_who_is_on_them(self):
        stasisd = self.start()
        self.run_shell(stasisd, "user", "sleep 1000")
        stasisd.agent.wait_for_job("user", lambda job: job.condition == pb.CONDITION_RUNNING)
        devices = stasisd.agent.stub.Devices(pb.DevicesRequest(kind="soft"), timeout=120)
        self.assertEqual(devices.kind, "soft")
        self.assertEqual([list(device.jobs) for device in devices.devices], [["user"]] * len(devices.devices))
        self.assertTrue(all(0 < device.free_bytes <= device.memory_bytes for device in devices.devices))

    def test_it_ends_in_good_order_and_jobs_run_on(self):
        stasisd = self.start()
        self.run_shell(stasisd, "stays", "sleep 1000")
        before = stasisd.agent.job("stays")
        stream = stasisd.agent.stub.Watch(pb.WatchRequest(), timeout=120)
        next(iter(stream))
        logs = stasisd.agent.stub.Logs(pb.LogsRequest(name="stays", follow=True), timeout=120)
        stasisd.process.terminate()
        for streams in (stream, logs):
            with self.assertRaises(grpc.RpcError) as failed:
                for _ in streams:
                    pass
            self.assertEqual(failed.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(stasisd.stop(), 0)
        self.assertEqual(stasisd.lines()[-1]["message"], "ended")
        stasisd.start()
        after = stasisd.agent.job("stays")
        self.assertEqual((after.condition, after.ranks[0].pid), (pb.CONDITION_RUNNING, before.ranks[0].pid))

    def test_what_it_counts_is_served(self):
        stasisd = self.start("--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0")
        stasisd.agent.jobs()
        address = next(line["metrics"] for line in stasisd.lines() if line["message"] == "ready")
        text = urllib.request.urlopen(f"http://{address}/metrics", timeout=60).read().decode()
        self.assertIn('stasis_rpc_total{code="OK",method="/stasis.v1.Agent/List"} 1', text.replace(
            'method="/stasis.v1.Agent/List",code="OK"', 'code="OK",method="/stasis.v1.Agent/List"'))
        self.assertIn("stasis_operations_running 0", text)
        self.assertIn("process_resident_memory_bytes", text)

    def test_a_cancelled_watch_leaves_nothing(self):
        stasisd = self.start()
        operation = stasisd.agent.begin("remove", job="nobody")
        self.assertEqual(stasisd.agent.wait(operation.id).state, op.OPERATION_STATE_FAILED)
        self.assertIn(stasisd.agent.wait(operation.id).state, ENDED)
        with self.assertRaises(grpc.RpcError) as failed:
            stasisd.agent.wait("op-999999")
        self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)


if __name__ == "__main__":
    unittest.main()
