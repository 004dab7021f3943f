"""The times of the programs of one step, of every group, as trace events that Perfetto and chrome://tracing read.

JAX dispatches without waiting, so a thread for each group waits for what the group's programs make, in their order. A program
began when it was dispatched, when the program before it on its group ended, or when the last program ended whose values it
reads, whatever came last: the time that a value travels counts as the reader's.
"""

import json
import os
import queue
import threading
import time

from automap.programs import ProgramsError


class Trace:
    """Given to Execution.step, which tells it of every program; finish() waits for the last one."""

    def __init__(self, groups):
        self._begun = time.perf_counter()
        self._told = [queue.SimpleQueue() for _ in range(groups)]
        self._failed = []  # of every thread that could not wait (name, error)
        self._ran = [[] for _ in range(groups)]  # of every group (name, kind, dispatched, ended, key, keys read)
        self._threads = [threading.Thread(target=self._wait, args=(group,), daemon=True) for group in range(groups)]
        for thread in self._threads:
            thread.start()

    def _now(self):
        return time.perf_counter() - self._begun

    def _wait(self, group):
        while True:
            told = self._told[group].get()
            if told is None:
                return
            name, kind, dispatched, made, key, reads = told
            try:
                for array in made:
                    array.block_until_ready()
            except Exception as error:
                self._failed.append((name, error))
                return
            self._ran[group].append((name, kind, dispatched, self._now(), key, reads))

    def ran(self, program, micro_batch, dispatched, made, reads):
        """`dispatched`: what dispatching() gave before the program was called. `made`: its arrays. `reads`: (value, micro-batch)
        of all that it waited for, as Section.waited_for has them."""
        kind = program.kind
        name = f"update, phase {program.place + 1}" if kind == "update" else f"{kind} {micro_batch + 1}, part {program.place + 1}"
        self._told[program.group].put((name, kind, dispatched, made, [(one, micro_batch) for one in program.makes], reads))

    def dispatching(self):
        return self._now()

    def finish(self):
        """Waits for all programs. The events: (group, name, kind, begin and end in seconds from the trace's own begin).
        ProgramsError where a program failed while it was waited for."""
        for told in self._told:
            told.put(None)
        for thread in self._threads:
            thread.join()
        if self._failed:
            name, error = self._failed[0]
            raise ProgramsError(f"{name}: XLA cannot run it: {(str(error) or type(error).__name__).splitlines()[0]}") from error
        ends = self._ends()
        made_at = {key: end for ran, of_group in zip(self._ran, ends) for (*_, keys, _), end in zip(ran, of_group) for key in keys}
        events = []
        for group, ran in enumerate(self._ran):
            free = 0.0
            for (name, kind, dispatched, _, _, reads), ended in zip(ran, ends[group]):
                begun = max([dispatched, free, *(made_at[key] for key in reads if key in made_at)])
                events.append((group, name, kind, begun, ended))
                free = ended
        return events

    def _ends(self):
        """When every program of every group ended: a thread may be late to see it, and then what read its values, or came
        behind it on its group, was seen to end before."""
        ends = [[one[3] for one in ran] for ran in self._ran]
        # Whoever reads a value was dispatched behind the program that makes it.
        latest_first = sorted(((one[2], group, i) for group, ran in enumerate(self._ran) for i, one in enumerate(ran)), reverse=True)
        read_by = {}
        for _, group, i in latest_first:
            _, _, _, _, keys, reads = self._ran[group][i]
            seen = [read_by[key] for key in keys if key in read_by] + ends[group][i + 1:i + 2]
            ends[group][i] = min([ends[group][i], *seen])
            for key in reads:
                read_by[key] = min(ends[group][i], read_by.get(key, ends[group][i]))
        return ends


def write_trace(path, manifest, events):
    """The events as JSON of the trace event format, times in microseconds."""
    made = [{"ph": "M", "name": "process_name", "pid": group + 1, "args": {"name": f"group {group + 1}"}}
            for group in range(manifest.plan.groups)]
    made += [{"ph": "X", "name": name, "cat": kind, "pid": group + 1, "tid": 1, "ts": 1e6 * begun, "dur": 1e6 * (ended - begun)}
             for group, name, kind, begun, ended in events]
    record = {"displayTimeUnit": "ms", "otherData": {"title": f"{manifest.model}, as it ran"}, "traceEvents": made}
    write_whole(path, record, "--trace")


def write_whole(path, record, option):
    """JSON; a file of that name is replaced as a whole."""
    written = f"{path}.{os.getpid()}.tmp"
    try:
        with open(written, "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(written, path)
    except OSError as error:
        if os.path.exists(written):
            os.remove(written)
        raise ProgramsError(f"{option} {path}: {error.strerror}; name a file in a folder that exists and can be written") from None
