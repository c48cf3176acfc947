"""`stasis images` on real stores: figures, needs, damage, removal, and images that travel to another site."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from softgpu import Node, built, die_with_parent

STASIS = built("bin/stasis")
MAKE_IMAGE = built("tests/cli/make_image")
MIB = 1 << 20
SECONDS = 120

NUMBER, TEXT, FLAG, LIST, OBJECT = int, str, bool, list, dict
LS_FIELDS = {"image": TEXT, "task": TEXT, "id": TEXT, "checkpoint": FLAG, "created": NUMBER, "device_bytes": NUMBER,
             "bytes": NUMBER, "zero_bytes": NUMBER, "unique_bytes": NUMBER, "stored_bytes": NUMBER, "frees_bytes": NUMBER,
             "manifest_bytes": NUMBER, "task_exists": FLAG, "task_state": TEXT, "damage": TEXT}
SHOW_FIELDS = {"image": TEXT, "id": TEXT, "created": NUMBER, "kernel": TEXT, "machine": TEXT, "criu": TEXT, "argv": LIST,
               "cwd": TEXT, "device": TEXT, "driver": TEXT, "bytes": NUMBER, "zero_bytes": NUMBER, "unique_bytes": NUMBER,
               "manifest_bytes": NUMBER, "device_bytes": NUMBER, "active_bytes": NUMBER, "log": TEXT, "log_copied": FLAG,
               "processes": LIST, "programs": LIST, "files": LIST, "folders": OBJECT, "needs": LIST, "restorable": FLAG,
               "summary": TEXT}
VERIFY_FIELDS = {"damages": LIST, "images": NUMBER, "packs": NUMBER, "chunks": NUMBER, "bytes": NUMBER}
GC_FIELDS = {"freed_bytes": NUMBER, "bytes_before": NUMBER, "bytes_after": NUMBER, "packs_removed": NUMBER,
             "packs_rewritten": NUMBER, "packs_in_use": NUMBER, "leftovers_removed": NUMBER, "damages": LIST}
EXPORT_FIELDS = {"image": TEXT, "id": TEXT, "file": TEXT, "file_bytes": NUMBER, "bytes": NUMBER}
IMPORT_FIELDS = {"image": TEXT, "id": TEXT, "exported_as": TEXT, "task_created": FLAG, "file": TEXT}


# A program that has device memory until its standard input ends.
HOLD_MEMORY = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[2]))) == 0
print("ready", flush=True)
sys.stdin.read()
"""


def part(seed, size):
    return {"seed": seed, "bytes": size}


class Folders:
    """The state and run folders of one site. `env` has what the software device is found by."""

    def __init__(self, folder, env):
        self.folder = folder
        self.state = os.path.join(folder, "state")
        self.store = os.path.join(self.state, "store")
        self.base = env

    def env(self):
        env = dict(self.base)
        env.pop("LD_LIBRARY_PATH", None)
        env.update(STASIS_STATE_DIR=self.state, STASIS_RUN_DIR=os.path.join(self.folder, "run"))
        return env

    def call(self, *arguments):
        result = subprocess.run([STASIS, *arguments], env=self.env(), stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=SECONDS, check=False, preexec_fn=die_with_parent)
        return result.returncode, result.stdout, result.stderr

    def json(self, *arguments):
        code, out, err = self.call(*arguments, "--json")
        try:
            return code, json.loads(out)
        except ValueError:
            raise AssertionError(f"{arguments}: no JSON: {out!r} {err!r}") from None

    def images(self, verb, *arguments):
        return self.json("images", verb, *arguments)

    def meta(self, name, **changes):
        meta = {"task": {"version": 1, "name": name, "argv": ["./train", "--epochs", "3"], "cwd": self.folder,
                         "created": 1700000000, "uid": 0, "device": "soft", "driver": built("lib/softgpu/libcuda.so.1"),
                         "strategy": "reconstruct", "gpus": [0], "managed": "refuse", "pid_namespace": True,
                         "driver_environment": ["LD_PRELOAD=/tmp/evil.so"],
                         "log": os.path.join(self.state, "tasks", name, "output.log")},
                "created": int(time.time()) - 100, "kernel": os.uname().release, "machine": platform.machine(),
                "criu": "4.1", "cpu_features": [], "init_nspid": 1, "program_nspid": 2,
                "log": os.path.join(self.state, "tasks", name, "output.log"), "log_copied": False,
                "run": os.path.join(self.folder, "run", "tasks", name), "programs": [], "files": [], "members": []}
        meta.update(changes)
        return meta

    def image(self, name, number, *seeds, size=MIB, **changes):
        return {"task": name, "id": number if isinstance(number, str) else f"{number:06}",
                "meta": self.meta(name, **changes), "streams": {"device-2": [part(seed, size) for seed in seeds]},
                "folders": {"criu": {"core.img": part(99, 1000)}, "files": {}}}

    def make(self, *images):
        """One call is one writer: what it adds is in packs of its own."""
        subprocess.run([MAKE_IMAGE, self.store], input=json.dumps(images), text=True, check=True, timeout=SECONDS)

    def make_each(self, *images):
        for image in images:
            self.make(image)

    def packs(self):
        folder = os.path.join(self.store, "packs")
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".pack")]

    def manifest(self, name):
        return os.path.join(self.store, "images", name + ".image")

    def names(self):
        return [image["image"] for image in self.images("ls", "--all")[1]["images"]]

    def record(self, task, file="task.json"):
        with open(os.path.join(self.state, "tasks", task, file), encoding="utf-8") as text:
            return json.load(text)

    def write_record(self, task):
        folder = os.path.join(self.state, "tasks", task)
        os.makedirs(folder)
        with open(os.path.join(folder, "task.json"), "w", encoding="utf-8") as file:
            json.dump(self.meta(task)["task"], file)


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


class ImagesTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="stasis-images-")
        self.addCleanup(self.temporary.cleanup)
        self.site = self.new_site("here")

    def new_site(self, name, env=None):
        folder = os.path.join(self.temporary.name, name)
        os.mkdir(folder)
        return Folders(folder, env or dict(os.environ))

    def file(self, name):
        return os.path.join(self.temporary.name, name)

    def assert_fields(self, document, fields):
        for name, kind in fields.items():
            self.assertIn(name, document)
            self.assertIs(type(document[name]), kind, name)

    def ok(self, site, verb, *arguments, fields=None):
        code, document = site.images(verb, *arguments)
        self.assertEqual((code, document["ok"], document["verb"]), (0, True, "images " + verb), document)
        self.assertIs(type(document["notes"]), list)
        self.assert_fields(document, fields or {})
        return document

    def refused(self, site, code, name, verb, *arguments):
        found, document = site.images(verb, *arguments)
        self.assertEqual((found, document["code"], document["ok"]), (code, name, False), document)
        self.assertEqual(document["exit_code"], code)
        text_code, out, err = site.call("images", verb, *arguments)
        self.assertEqual((text_code, out), (code, ""), err)
        return document


class Listing(ImagesTest):
    def test_a_site_without_images(self):
        self.assertEqual(self.ok(self.site, "ls")["images"], [])
        self.assertEqual(self.ok(self.site, "verify", fields=VERIFY_FIELDS)["images"], 0)
        self.assertEqual(self.ok(self.site, "gc", fields=GC_FIELDS)["freed_bytes"], 0)
        for verb in (["show", "a"], ["verify", "a"], ["rm", "a/000001"], ["export", "a", self.file("x")]):
            self.refused(self.site, 3, "NOT_FOUND", *verb)
        self.assertFalse(os.path.exists(self.site.state), "asking makes nothing")

    def test_figures(self):
        site = self.site
        # 1 is in both images of a, 3 in a and b; 0 is nothing.
        site.make_each(site.image("a", 1, 1, 2, 0), site.image("a", 2, 1, 3), site.image("b", 1, 3, 4, 4))
        images = {image["image"]: image for image in self.ok(site, "ls")["images"]}
        self.assertEqual(list(images), ["a/000001", "a/000002", "b/000001"])
        for image in images.values():
            self.assert_fields(image, LS_FIELDS)
            self.assertAlmostEqual(time.time() - image["created"], 100, delta=60)
            self.assertFalse(image["task_exists"])
        slack = 64 << 10  # headers, and the small file that all of them have
        for name, zero, unique, frees in (("a/000001", 1, 2, 1), ("a/000002", 0, 2, 0), ("b/000001", 0, 2, 1)):
            image = images[name]
            self.assertEqual(image["bytes"], (3 if name != "a/000002" else 2) * MIB + 1000)
            self.assertEqual(image["zero_bytes"], zero * MIB)
            self.assertEqual(image["unique_bytes"], unique * MIB + 1000)
            self.assertAlmostEqual(image["stored_bytes"], unique * MIB, delta=slack)
            self.assertAlmostEqual(image["frees_bytes"], frees * MIB, delta=slack)
        only = self.ok(site, "ls", "b")["images"]
        self.assertEqual([image["image"] for image in only], ["b/000001"])
        self.assertEqual(only[0], images["b/000001"], "what is asked for does not change the figures")
        code, table, _ = site.call("images", "ls")
        self.assertEqual(code, 0)
        self.assertRegex(table, r"a/000001 .* 1\.0 MiB  no such task\n")

    def test_what_ls_promises_gc_frees(self):
        site = self.site
        site.make_each(site.image("a", 1, 1, 2), site.image("a", 2, 1, 3, 4))
        promised = self.ok(site, "ls", "a")["images"][1]["frees_bytes"]
        self.ok(site, "rm", "a/000002")
        report = self.ok(site, "gc", fields=GC_FIELDS)
        self.assertAlmostEqual(report["freed_bytes"], promised, delta=64 << 10)
        self.assertEqual(report["bytes_before"] - report["bytes_after"], report["freed_bytes"])
        self.assertEqual(self.ok(site, "gc")["freed_bytes"], 0)
        self.assertEqual(self.ok(site, "verify")["damages"], [])

    def test_the_state_of_the_task(self):
        self.site.make(self.site.image("a", 1, 1))
        self.site.write_record("a")
        self.assertEqual([(i["task_exists"], i["task_state"]) for i in self.ok(self.site, "ls")["images"]], [(True, "created")])

    def test_what_a_pause_holds_is_shown_when_asked_for(self):
        self.site.make(self.site.image("a", 1, 1), self.site.image("a", "held", 2))
        self.assertEqual([i["id"] for i in self.ok(self.site, "ls")["images"]], ["000001"])
        listed = self.ok(self.site, "ls", "--all")["images"]
        self.assertEqual([(i["id"], i["checkpoint"]) for i in listed], [("000001", True), ("held", False)])

    def test_images_of_version_1_are_named(self):
        old = os.path.join(self.site.state, "images", "old", "000003")
        os.makedirs(old)
        with open(os.path.join(old, "manifest.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        self.assertIn("old/000003", self.ok(self.site, "ls")["notes"][0])
        for verb in (["show", "old/000003"], ["verify", "old/000003"], ["export", "old/000003", self.file("x")]):
            self.assertIn("version 1", self.refused(self.site, 6, "UNSUPPORTED", *verb)["message"])
        path = os.path.join(self.site.state, "images", "old", "000003")
        self.assertEqual(self.site.json("restore", path)[0], 6)
        self.assertEqual(self.site.json("rm", "old")[0], 0)
        self.assertFalse(os.path.exists(os.path.dirname(path)))


class Names(ImagesTest):
    def test_what_is_no_name(self):
        self.site.make(self.site.image("a", 1, 1))
        shutil.copy(self.site.manifest("a/000001"), self.file("outside.image"))
        for verb in ("show", "verify", "rm", "export"):
            more = [self.file("x")] if verb == "export" else []
            for name in ("..", "../a", "a/..", "a/../a/000001", "/etc", "a/0/1", "", "a/", "-"):
                code, document = self.site.images(verb, name, *more)
                self.assertIn(code, (2, 6), (verb, name, document))
                self.assertIn(document["code"], ("INVALID_ARGUMENT", "UNSUPPORTED"))
            self.refused(self.site, 6, "UNSUPPORTED", verb, self.file("outside.image"), *more)
        self.refused(self.site, 2, "INVALID_ARGUMENT", "ls", "../a")
        self.refused(self.site, 2, "INVALID_ARGUMENT", "rm", "a")
        self.assertEqual(self.site.names(), ["a/000001"])

    def test_the_path_of_a_manifest_is_a_name(self):
        self.site.make(self.site.image("a", 1, 1))
        self.assertEqual(self.ok(self.site, "verify", self.site.manifest("a/000001"))["images"], 1)

    def test_usage(self):
        for arguments in ([], ["frob"], ["show"], ["rm"], ["export", "a"], ["import"], ["ls", "a", "b"], ["gc", "x"]):
            code, out, err = self.site.call("images", *arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertTrue(err.startswith("stasis: images"), err)
        self.assertIn("frob", self.site.call("images", "frob")[2])
        for verb in ("ls", "show", "verify", "rm", "gc", "export", "import"):
            code, out, _ = self.site.call("images", verb, "--help")
            self.assertEqual(code, 0)
            self.assertIn("Example", out)


class Showing(ImagesTest):
    def setUp(self):
        super().setUp()
        self.node = Node("--gpus", "1", "--memory", "64MiB")
        self.node.__enter__()
        self.addCleanup(self.node.__exit__, None, None, None)
        self.site = self.new_site("node", self.node.env())

    def member(self, memory):
        device = {"virtual": 0, "physical": 0, "uuid": "00" * 16, "name": "softgpu", "memory": 64 * MIB, "capability": 75,
                  "used": True}
        extents = [{"id": 1, "device": 0, "address": MIB, "size": memory}]
        return {"nspid": 2, "strategy": "reconstruct", "driver_version": 12000, "devices": [device], "placed_uuids": [],
                "stream": "device-2", "extents": extents, "ranges": [{"address": MIB, "size": MIB}]}

    def needs(self, **changes):
        self.site.make(self.site.image("a", 1, 1, **changes))
        document = self.ok(self.site, "show", "a", fields=SHOW_FIELDS)
        for need in document["needs"]:
            self.assert_fields(need, {"what": TEXT, "needed": TEXT, "here": TEXT})
            self.assertIn(need["met"], (True, False, None))
        unmet = [need for need in document["needs"] if need["met"] is False]
        self.assertEqual(document["restorable"], not unmet)
        return document, {need["what"]: need for need in document["needs"]}

    def test_content(self):
        document, needs = self.needs(members=[self.member(2 * MIB)])
        self.assertEqual((document["device_bytes"], document["active_bytes"]), (2 * MIB, MIB))
        self.assertEqual(document["folders"], {"criu": [{"name": "core.img", "size": 1000}], "files": []})
        self.assertEqual(document["argv"], ["./train", "--epochs", "3"])
        self.assertEqual(document["processes"][0]["nspid"], 2)
        self.assertEqual(document["processes"][0]["devices"][0]["capability"], 75)
        for what in ("machine", "kernel", "CPU", "devices", "driver", "memory of device 0", "folder"):
            self.assertTrue(needs[what]["met"], needs[what])
        self.assertFalse(needs["task"]["met"], "there is no record of it")
        text = self.site.call("images", "show", "a/000001")[1]
        for word in ("./train --epochs 3", "device-2"[:6], "2.0 MiB of device memory, 1.0 MiB active", "To restore it here",
                     "not met  task"):
            self.assertIn(word, text)
        self.site.write_record("a")
        code, shown = self.site.images("show", "a")
        task = [need for need in shown["needs"] if need["what"] == "task"][0]
        self.assertEqual((code, task["met"], task["here"]), (0, True, "created"))

    def test_a_machine_that_does_not_fit(self):
        _, needs = self.needs(machine="vax", cpu_features=["avx1024"], criu="99.0", members=[self.member(128 * MIB)])
        for what in ("machine", "CPU", "memory of device 0"):
            self.assertIs(needs[what]["met"], False, needs[what])
        self.assertIn("avx1024", needs["CPU"]["here"])
        self.assertIn("64.0 MiB in all", needs["memory of device 0"]["here"])
        self.assertIsNot(needs["criu"]["met"], True)

    def test_files_that_do_not_fit(self):
        good, short, grown = self.file("good"), self.file("short"), self.file("grown")
        for path, size in ((good, 10), (short, 9), (grown, 11)):
            with open(path, "wb") as file:
                file.write(bytes(size))
        files = [{"path": path, "size": 10, "writable": False} for path in (good, short, grown, self.file("gone"))]
        files.append({"path": grown, "size": 10, "writable": True})
        programs = [{"path": good, "build_id": "", "size": 10, "mtime": 1},
                    {"path": "/bin/true", "build_id": "00ff", "size": 1, "mtime": 1}]
        document, _ = self.needs(files=files, programs=programs)
        met = [need["met"] for need in document["needs"] if need["what"] == "file"]
        self.assertEqual(met, [True, False, False, False, True])
        self.assertEqual([need["met"] for need in document["needs"] if need["what"] == "program"], [False, False])
        self.assertIn("cannot be restored here", document["summary"])

    def test_no_driver(self):
        task = self.site.meta("a")["task"] | {"driver": "/nonexistent/libcuda.so.1"}
        _, needs = self.needs(task=task, members=[self.member(MIB)])
        self.assertIs(needs["driver"]["met"], False)

    def test_memory_that_is_in_use(self):
        self.site.make(self.site.image("a", 1, 1, members=[self.member(48 * MIB)]))
        holder = subprocess.Popen([sys.executable, "-c", HOLD_MEMORY, built("lib/softgpu/libcuda.so.1"), str(32 * MIB)],
                                  env=self.node.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  preexec_fn=die_with_parent)
        self.assertEqual(holder.stdout.readline(), b"ready\n")
        needs = {need["what"]: need for need in self.ok(self.site, "show", "a")["needs"]}
        holder.communicate(timeout=SECONDS)
        self.assertIs(needs["memory of device 0"]["met"], False, needs)
        self.assertIn("free", needs["memory of device 0"]["here"])

    def test_what_a_pause_holds_is_no_checkpoint(self):
        held = self.site.image("a", "held", 1)
        held["meta"] = {"nothing": "of a task"}
        self.site.make(held)
        self.refused(self.site, 11, "CORRUPT", "show", "a/held")


class Damaged(ImagesTest):
    def test_a_pack(self):
        site = self.site
        site.make_each(site.image("a", 1, 1), site.image("b", 1, 2))
        self.assertEqual(self.ok(site, "verify", fields=VERIFY_FIELDS)["images"], 2)
        pack = site.packs()[0]
        offset = os.path.getsize(pack) // 2
        flip(pack, offset)
        document = self.refused(site, 11, "CORRUPT", "verify")
        self.assert_fields(document, VERIFY_FIELDS)
        for damage in document["damages"]:
            self.assert_fields(damage, {"file": TEXT, "offset": NUMBER, "what": TEXT})
        found = [d for d in document["damages"] if os.path.join(site.store, d["file"]) == pack]
        self.assertEqual(len(found), 1, document["damages"])
        self.assertTrue(offset - (64 << 10) - 48 <= found[0]["offset"] <= offset, found)
        self.assertIn(os.path.basename(pack), site.call("images", "verify")[2])
        codes = {name: site.images("verify", name) for name in ("a/000001", "b")}
        self.assertEqual(sorted(code for code, _ in codes.values()), [0, 11])
        bad = [document for code, document in codes.values() if code == 11][0]
        self.assertIn(os.path.basename(pack), bad["damages"][0]["what"])
        name = bad["damages"][0]["file"]
        self.assertIn(name, ("images/a/000001.image", "images/b/000001.image"))
        self.refused(site, 11, "CORRUPT", "export", name[len("images/"):-len(".image")], self.file("x"))
        self.assertEqual(os.listdir(self.temporary.name), ["here"], "nothing half-written is left")

    def test_a_manifest(self):
        site = self.site
        site.make_each(site.image("a", 1, 1), site.image("b", 1, 2))
        flip(site.manifest("a/000001"), 50)
        document = self.ok(site, "ls")
        self.assertEqual([bool(image["damage"]) for image in document["images"]], [True, False])
        self.assertIn("a/000001", " ".join(document["notes"]))
        self.refused(site, 11, "CORRUPT", "show", "a")
        document = self.refused(site, 11, "CORRUPT", "verify")
        self.assertIn("images/a/000001.image", document["damages"][0]["file"])
        # What it names is not known, so nothing may be collected until it is gone.
        self.refused(site, 4, "FAILED_PRECONDITION", "gc")
        self.ok(site, "rm", "a/000001")
        self.assertGreater(self.ok(site, "gc")["freed_bytes"], MIB // 2)
        self.ok(site, "verify")

    def test_an_index_is_made_again(self):
        self.site.make(self.site.image("a", 1, 1))
        os.remove(self.site.packs()[0][:-len("pack")] + "idx")
        self.ok(self.site, "verify", "a")


class Removing(ImagesTest):
    def test_all_or_nothing(self):
        site = self.site
        site.make(site.image("a", 1, 1), site.image("a", 2, 2), site.image("a", 3, 3))
        self.assertIn("a/000009", self.refused(site, 3, "NOT_FOUND", "rm", "a/000001", "a/000009")["message"])
        self.assertEqual(len(site.names()), 3)
        self.assertEqual(self.ok(site, "rm", "a/000003", "a/000001", "a/000003")["removed"], ["a/000003", "a/000001"])
        self.assertEqual(site.names(), ["a/000002"])

    def test_the_last_way_back(self):
        site = self.site
        site.make(site.image("a", 1, 1), site.image("a", 2, 2))
        site.write_record("a")
        document = self.refused(site, 4, "FAILED_PRECONDITION", "rm", "a/000001", "a/000002")
        self.assertIn("--force", document["remedy"])
        flip(site.manifest("a/000001"), 60)
        self.refused(site, 4, "FAILED_PRECONDITION", "rm", "a/000002")
        self.ok(site, "rm", "a/000001")
        self.ok(site, "rm", "--force", "a/000002")
        self.assertEqual(site.names(), [])

    def test_stasis_rm_takes_the_images_along(self):
        site = self.site
        site.make_each(site.image("a", 1, 1), site.image("a", 2, 2), site.image("b", 1, 3))
        site.write_record("a")
        code, document = site.json("rm", "a")
        self.assertEqual((code, document["images"]), (0, 2))
        self.assertGreater(document["bytes"], 2 * MIB)
        self.assertEqual(site.names(), ["b/000001"])
        self.assertFalse(os.path.exists(os.path.join(site.state, "tasks", "a")))
        self.ok(site, "verify")
        self.assertEqual(site.json("rm", "a")[0], 3)
        self.assertEqual(site.json("rm", "b")[0], 0, "images without a record can be removed, too")
        self.assertEqual(site.names(), [])


class Travelling(ImagesTest):
    def setUp(self):
        super().setUp()
        self.there = self.new_site("there")
        self.exported = self.file("a.stasis")
        self.site.make(self.site.image("a", 7, 1, 0, 2))

    def export(self):
        return self.ok(self.site, "export", "a", self.exported, fields=EXPORT_FIELDS)

    def nothing_there(self):
        self.assertEqual(self.there.names(), [])
        self.assertFalse(os.path.exists(os.path.join(self.there.state, "tasks", "a")))

    def test_there(self):
        document = self.export()
        self.assertEqual((document["image"], document["file"]), ("a/000007", self.exported))
        self.assertEqual(document["file_bytes"], os.path.getsize(self.exported))
        self.assertEqual(os.stat(self.exported).st_mode & 0o777, 0o600)
        document = self.ok(self.there, "import", self.exported, fields=IMPORT_FIELDS)
        self.assertEqual((document["image"], document["exported_as"]), ("a/000007", "a/000007"))
        self.assertTrue(document["task_created"])
        self.assertEqual(self.ok(self.there, "verify")["images"], 1)
        task = self.there.record("a")
        self.assertEqual(task["log"], os.path.join(self.there.state, "tasks", "a", "output.log"))
        self.assertNotIn("LD_PRELOAD", json.dumps(task))
        entry = self.there.json("ps")[1]["tasks"][0]
        self.assertEqual((entry["name"], entry["state"], entry["last_image"]), ("a", "checkpointed", "000007"))
        here, there = (site.images("show", "a")[1] for site in (self.site, self.there))
        for field in ("bytes", "zero_bytes", "unique_bytes", "created", "argv", "folders"):
            self.assertEqual(here[field], there[field])

    def test_twice(self):
        self.export()
        self.ok(self.there, "import", self.exported)
        before = self.ok(self.there, "ls")["store"]["stored_bytes"]
        document = self.ok(self.there, "import", self.exported)
        self.assertEqual((document["image"], document["task_created"]), ("a/000008", False))
        self.assertIn("000007", document["notes"][0])
        self.assertEqual(self.ok(self.there, "ls")["store"]["stored_bytes"], before, "its chunks were there")

    def test_a_file_that_is_there_is_kept(self):
        with open(self.exported, "w", encoding="utf-8") as file:
            file.write("mine")
        self.refused(self.site, 4, "ALREADY_EXISTS", "export", "a", self.exported)
        with open(self.exported, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")

    def test_another_task_of_that_name(self):
        self.export()
        self.there.write_record("a")
        record = self.there.record("a")
        record["created"] += 1
        with open(os.path.join(self.there.state, "tasks", "a", "task.json"), "w", encoding="utf-8") as file:
            json.dump(record, file)
        self.assertIn("--as", self.refused(self.there, 4, "ALREADY_EXISTS", "import", self.exported)["remedy"])
        self.assertEqual(self.there.names(), [])
        self.assertEqual(self.there.record("a"), record)
        self.refused(self.there, 2, "INVALID_ARGUMENT", "import", self.exported, "--as", "../b")
        self.assertEqual(self.ok(self.there, "import", self.exported, "--as", "b")["image"], "b/000007")
        self.assertEqual(self.there.record("b")["name"], "b")
        self.assertEqual(self.there.json("ps")[1]["tasks"][0]["name"], "b")
        shutil.rmtree(os.path.join(self.there.state, "tasks"))
        self.there.make(self.there.image("a", 1, 5, task=record | {"argv": ["other"]}))
        self.refused(self.there, 4, "ALREADY_EXISTS", "import", self.exported)

    def test_a_name_that_is_none(self):
        self.site.make(self.site.image(".a", 1, 1))
        subprocess.run([MAKE_IMAGE, self.site.store, ".a", "000001", self.exported], check=True, timeout=SECONDS)
        self.assertIn("--as", self.refused(self.there, 11, "CORRUPT", "import", self.exported)["message"])
        self.nothing_there()
        self.assertEqual(self.ok(self.there, "import", self.exported, "--as", "b")["image"], "b/000001")

    def test_hostile_files(self):
        self.export()
        with open(self.exported, "rb") as file:
            good = file.read()
        bad = self.file("bad.stasis")
        cases = [good[:size] for size in (0, 1, 8, 31, 32, 100, len(good) // 2, len(good) - 1)]
        cases += [good + b"x", os.urandom(4096), good[:32] + os.urandom(len(good) - 32)]
        for offset in (0, 9, 17, 25, 40, 200, len(good) // 3, len(good) - 60, len(good) - 30, len(good) - 1):
            cases.append(good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1:])
        for number, case in enumerate(cases):
            with open(bad, "wb") as file:
                file.write(case)
            code, document = self.there.images("import", bad)
            self.assertIn((code, document["code"]), ((11, "CORRUPT"), (6, "UNSUPPORTED")), (number, document))
            self.assertIn("bad.stasis", document["message"], number)
        self.nothing_there()
        self.refused(self.there, 3, "NOT_FOUND", "import", self.file("none"))
        for path in (self.temporary.name, "/dev/zero"):
            self.assertEqual(self.there.images("import", path)[0], 2, path)
        self.ok(self.there, "gc")
        self.assertEqual(self.ok(self.there, "ls")["store"]["stored_bytes"], 0)

    def test_meta_that_is_not_of_a_task(self):
        for change in ({"task": {}}, {"machine": 7}, {"log": "../x"}, {"programs": [{"path": "/a/../b"}]}):
            path = self.file("meta.stasis")
            self.site.make(self.site.image("m", 1, 1, **change))
            self.ok(self.site, "export", "m", path)
            self.refused(self.there, 11, "CORRUPT", "import", path)
            os.remove(path)
            self.ok(self.site, "rm", "--force", "m/000001")
        self.nothing_there()

    @unittest.skipUnless(os.geteuid() == 0, "needs root: a file system is mounted")
    def test_a_full_disk(self):
        self.site.make(self.site.image("a", 8, *range(10, 30)))
        self.export()
        os.mkdir(self.there.state)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", self.there.state], check=True)
        self.addCleanup(subprocess.run, ["umount", self.there.state], check=True)
        document = self.refused(self.there, 8, "RESOURCE_EXHAUSTED", "import", self.exported)
        self.assertIn("images gc", document["remedy"])
        self.nothing_there()
        info = os.statvfs(self.there.state)
        self.assertGreater(info.f_bavail * info.f_frsize, 7 * MIB, "the room is given back")
        small = self.file("small.stasis")
        self.ok(self.site, "export", "a/000007", small)
        self.ok(self.there, "import", small)
        self.ok(self.there, "verify")


if __name__ == "__main__":
    unittest.main()
