"""Tells Stasis which memory a PyTorch program uses, so that checkpoints hold that alone.

    import stasis_torch
    stasis_torch.attach()  # before the program makes its first tensor on a CUDA device

Every step of an optimizer ends an iteration. Where Stasis does not run the program nothing happens. Memory of expandable
segments and of private pools (CUDA graphs) stays in checkpoints as a whole.
"""

import ctypes
import os

import torch

_library = None


def attach(library=os.path.join(os.path.dirname(os.path.abspath(__file__)), "libstasis_torch.so")):
    global _library  # pylint: disable=global-statement
    if _library is not None:
        return
    torch.cuda.init()
    _library = ctypes.CDLL(library)
    _library.stasis_torch_attach()
    torch.optim.optimizer.register_optimizer_step_post_hook(lambda *_: iteration())


def iteration():
    """One round of the program's loop ends, for loops without an optimizer."""
    _library.stasis_torch_iteration()
