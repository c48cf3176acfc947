#!/usr/bin/env python3
"""run_on_softgpu.py [softgpud option...] -- COMMAND...: runs a command on a fresh softgpu node and passes its exit code on."""

import subprocess
import sys

from softgpu import Node, die_with_parent


def main():
    if "--" not in sys.argv:
        sys.exit(__doc__)
    split = sys.argv.index("--")
    with Node(*sys.argv[1:split]) as node:
        return subprocess.run(sys.argv[split + 1:], env=node.env(), stdin=subprocess.DEVNULL, check=False,
                              preexec_fn=die_with_parent).returncode


if __name__ == "__main__":
    sys.exit(main())
