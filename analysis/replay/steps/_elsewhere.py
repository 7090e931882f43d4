"""Starting jobs where no placement would put them: in another VC, or on nodes of one's own choice."""

from __future__ import annotations

from typing import NoReturn

from analysis.errors import UsageError
from analysis.replay._bits import I64
from analysis.replay._hardware import MILLI
from analysis.replay.steps import _kernel
from analysis.replay.steps._scene import Scene


class Elsewhere(Scene):
    """The part of ``Simulation`` for policies that choose nodes themselves."""

    def start_in(self, row: int, vc: int) -> bool:
        """Start a waiting job on the nodes of another VC, asking for the same as at home.

        Returns
        -------
        bool
            False, and nothing happens, if it does not fit there now, or never would.

        Raises
        ------
        UsageError
            If it does not wait, or the placement is a scored one: those know every VC's jobs beforehand.
        """
        self._need_consolidate()
        ask = self._ask_in(int(self.prepared.job_class[row]), vc)
        if ask is None:
            return False
        done = _kernel.start_row(self.box, row, ask, self.now_us)
        if done < 0:
            self._refuse(row, "start", "waits")
        return done == 1

    def start_on(self, row: int, nodes: I64, gpus: I64, *, slowdown: float = 1.0) -> bool:
        """Start a waiting job on free GPUs of nodes of one's own choice.

        Parameters
        ----------
        row : int
            A job that asks for whole GPUs.
        nodes, gpus : int64 arrays
            Numbers of the nodes, in the order of ``prepared.nodes``, each once, and how many GPUs of each, together
            what the job asks for. Whether it may use nodes of that VC and type is left to the caller.
        slowdown : float, default 1
            Run time there of the work that is left, over that on the same GPUs next to each other, in this run.

        Returns
        -------
        bool
            False, and nothing happens, if they are not all free.

        Raises
        ------
        UsageError
            If it does not wait, the GPUs do not add up to what it asks for, or the placement is a scored one: those
            choose the nodes themselves.
        """
        self._need_consolidate()
        if gpus.sum() * MILLI != self.milli[row] or gpus.min(initial=1) < 1 or len(set(nodes.tolist())) < len(nodes):
            msg = (
                f"simulation: job {self.job_ids[row]!r} asks for {self.milli[row] / MILLI:g} GPUs; found "
                f"{gpus.tolist()} on nodes {nodes.tolist()}. Give whole GPUs of different nodes that add up to that."
            )
            raise UsageError(msg)
        done = _kernel.start_on(self.box, row, nodes, gpus, float(slowdown), self.now_us)
        if done < 0:
            self._refuse(row, "start", "waits")
        return done == 1

    def _need_consolidate(self) -> None:
        if self.prepared.hw.scores is not None:
            msg = (
                "simulation: a policy that chooses nodes itself goes with placement 'consolidate' only, since the "
                "others score every job's nodes. Leave the placement out."
            )
            raise UsageError(msg)

    def _refuse(self, row: int, verb: str, expected: str) -> NoReturn:
        what = ("has not been submitted", "waits", "runs", "has ended")[self.kept.status[row]]
        msg = f"simulation: cannot {verb} job {self.job_ids[row]!r}: it {what}; expected one that {expected}."
        raise UsageError(msg)
