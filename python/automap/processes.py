"""The processes of one run: which of them this is, as the launcher says it in the environment, and what they tell each other.

Names, addresses and failures go through the key-value store of JAX's distributed runtime, arrays from process to process by
jax.experimental.transfer. Nothing here waits longer than the limit that it is given. JAX is imported where it is used.
"""

import datetime
import os
import socket
import subprocess
import sys
import threading
import time

from automap.programs import ProgramsError

# By launcher the variables of a process's number and how many there are, as train/rank_place.h reads them, then on its server.
LAUNCHERS = (("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
             ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
             ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
             ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"))
# A process says that it is there, and is lost after so long without a word. One that still compiles may be silent for the whole
# limit of a wait: XLA reads and converts a large program for minutes in which no other Python of its process runs.
SAYS_EVERY_S, LOST_AFTER_S = 0.5, 10


class Place:
    """rank of count processes; rank 0's machine and port; local_rank of local_count on this server."""

    def __init__(self, rank, count, host, port, local_rank=0, local_count=1):
        self.rank, self.count, self.host, self.port = rank, count, host, port
        self.local_rank, self.local_count = local_rank, local_count


def first_host(nodes):
    """"node[03-05,9],other" -> "node03"."""
    name, bracket, inside = nodes.split(",")[0].partition("[")
    return name + inside.rstrip("]").split("-")[0] if bracket else name


def place_of(environment):
    """The Place, None where no launcher started several processes. ProgramsError names the variable that is missing or no number."""
    def number(name, least, most):
        text = environment[name]
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ProgramsError(f"environment {name}: found {text!r}, expected a number from {least} to {most}; the launcher sets it "
                                "(torchrun, srun, mpirun)")
        return int(text)

    names = next((names for names in LAUNCHERS if environment.get(names[1])), None)
    count = number(names[1], 1, 4096) if names else 1
    if count == 1:
        return None
    rank_name, count_name, local_rank, local_count = names
    if not environment.get(rank_name):
        raise ProgramsError(f"environment: {count_name} is {count} and {rank_name} is not set: which of the processes is this?")
    host, port = environment.get("MASTER_ADDR"), 29500
    if not host and rank_name == "SLURM_PROCID" and environment.get("SLURM_STEP_NODELIST"):
        host = first_host(environment["SLURM_STEP_NODELIST"])
    if not host:
        raise ProgramsError(f"environment: {count_name} is {count} and MASTER_ADDR is not set: where is process 0? MASTER_ADDR is the "
                            "name or address of its machine, MASTER_PORT a free port there")
    if environment.get("MASTER_PORT"):
        port = number("MASTER_PORT", 1, 65535)
    elif rank_name == "SLURM_PROCID" and environment.get("SLURM_JOB_ID", "").isdecimal():
        port = 20000 + int(environment["SLURM_JOB_ID"]) % 10000
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun itself listens at its port.
        port += 1 if port < 65535 else -1
    place = Place(number(rank_name, 0, count - 1), count, host, port)
    of_server = environment.get(local_count, "").partition("(")[0]  # Slurm writes "4(x2)".
    if of_server.isdecimal() and int(of_server) > 0 and environment.get(local_rank, "").isdecimal():
        place.local_rank, place.local_count = int(environment[local_rank]), int(of_server)
    return place


def dealt(devices_of_groups, count):
    """How many devices each of `count` processes has: whole groups, or with more processes than groups equal parts of all devices."""
    groups, total = len(devices_of_groups), sum(devices_of_groups)
    if count <= groups:
        ends = [number * groups // count for number in range(count + 1)]
        return [sum(devices_of_groups[a:b]) for a, b in zip(ends, ends[1:])]
    if total % count:
        raise ProgramsError(f"{count} processes for {groups} groups with {total} devices together; start at most {groups}, each with "
                            f"groups of its own, or as many as divide {total}")
    return [total // count] * count


def in_order(devices, wanted):
    """The devices of the groups in their order, out of those of all processes: of each as many as it is dealt, or where one has
    fewer, all in their own order."""
    by_process = {}
    for device in devices:
        by_process.setdefault(device.process_index, []).append(device)
    has = [by_process[rank] for rank in sorted(by_process)]
    if len(has) == len(wanted) and all(len(one) >= count for one, count in zip(has, wanted)):
        has = [one[:count] for one, count in zip(has, wanted)]
    return [device for one in has for device in one]


def limit_ms(seconds):
    return int(1000 * seconds)


class Processes:
    """This process among those of a run that JAX's distributed runtime knows (jax.distributed.initialize). limit: the seconds
    that one wait for another process may take."""

    def __init__(self, client, rank, count, limit, host="127.0.0.1"):
        self.client, self.rank, self.count, self.limit, self._host = client, rank, count, limit, host
        self._numbers, self._connections, self._server = 0, {}, None
        self.has_begun = threading.Event()

    def started(self):
        """Itself, ready to exchange arrays: once JAX's devices are known."""
        from jax.experimental import transfer

        import jax

        where = f"[{self._host}]:0" if ":" in self._host else f"{self._host}:0"
        self._server = transfer.start_transfer_server(jax.local_devices()[0].client, where, [where])
        # Of several Processes of one process (two runs of automap.jax) each has transfers of its own.
        self.of_run = self.client.key_value_increment(f"automap/runs/{self.rank}", 1)
        self.tell(f"transfer/{self.of_run}/{self.rank}", self._server.address())
        return self

    def tell(self, key, text):
        self.client.key_value_set(f"automap/{key}", text, allow_overwrite=True)

    def hear(self, key, rank):
        """What `rank` tells by that key, when it does."""
        try:
            return self.client.blocking_key_value_get(f"automap/{key}", limit_ms(self.limit))
        except Exception as error:
            raise ProgramsError(f"process {rank} said nothing for {self.limit:g} s ({first_line(error)}); see what it prints, or give "
                                "it longer with --wait") from None

    def next_number(self):
        """One more: all processes count the transfers of a run in the same order."""
        self._numbers += 1
        return self._numbers

    def _until(self):
        return datetime.datetime.now() + datetime.timedelta(seconds=self.limit)

    def offer(self, number, array):
        self._server.await_pull(number, [array], timeout=self._until())

    def fetch(self, rank, number, shape, kind, device):
        """The array of one device that process `rank` offers under that number; what comes later is waited for by who reads it."""
        import jax

        if rank not in self._connections:
            self._connections[rank] = self._server.connect(self.hear(f"transfer/{self.of_run}/{rank}", rank))
        asked = jax.ShapeDtypeStruct(shape, kind, sharding=jax.sharding.SingleDeviceSharding(device))
        return self._connections[rank].pull(number, [asked], timeout=self._until())[0]

    def meet(self, where):
        try:
            self.client.wait_at_barrier(f"automap/{self.of_run}/{where}", limit_ms(self.limit))
        except Exception as error:
            raise ProgramsError(f"not all processes came to {where} within {self.limit:g} s ({first_line(error)}); --wait S waits "
                                "longer") from None

    def begin(self):
        """Once this process has compiled its programs: waits until all have. In a sum of a group nobody waits as long as one may
        compile: Gloo gives up after half a minute."""
        if not self.has_begun.is_set():
            self.meet("the first step")
            self.has_begun.set()


def first_line(error):
    return (str(error) or type(error).__name__).splitlines()[0]


class Coordinator:
    """The service that all processes meet at, a program of its own (coordinator.py): when process 0 is lost, the others hear of it."""

    def __init__(self, place):
        where = "[::]" if place.host not in ("127.0.0.1", "localhost") else "127.0.0.1"
        self._program = subprocess.Popen([sys.executable, "-B", os.path.join(os.path.dirname(__file__), "coordinator.py"),
                                          f"{where}:{place.port}", str(place.count)], stdin=subprocess.PIPE)

    def lost(self):
        return self._program.poll() is not None

    def close(self):
        self._program.communicate(b"end", timeout=LOST_AFTER_S)


def join(place, limit, name):
    """Meets the other processes: a Processes, watched. name: "groups 1 and 2", of this one for what others say of it."""
    from jax._src import distributed
    from jaxlib import _jax

    coordinator = Coordinator(place) if place.rank == 0 else None
    until = time.monotonic() + limit
    state = distributed.global_state
    state.process_id, state.num_processes = place.rank, place.count
    state.coordinator_address = f"{place.host}:{place.port}"
    # Where the runtime itself finds that nobody comes or somebody is lost, it ends the process without a name: its limits are
    # longer than those of the waits and of the watch below.
    state.client = _jax.get_distributed_runtime_client(state.coordinator_address, place.rank, init_timeout=int(limit) + 60,
                                                       shutdown_timeout=int(limit) + 60, heartbeat_timeout=6 * LOST_AFTER_S,
                                                       use_compression=True)
    ended, failed = threading.Event(), []

    def connect():
        try:
            state.client.connect()
        except Exception as error:
            failed.append(error)
        ended.set()

    threading.Thread(target=connect, daemon=True).start()
    while not ended.wait(0.1):
        if coordinator and coordinator.lost():
            raise ProgramsError("the service that the processes meet at does not run")
        if time.monotonic() > until:
            raise ProgramsError(f"process {place.rank} of {place.count} waited {limit:g} s at {state.coordinator_address}, and not all "
                                "came; is every process started, and can each reach process 0 there? --wait S waits longer")
    if failed:
        raise ProgramsError(f"process {place.rank} of {place.count} cannot meet the others at {state.coordinator_address} "
                            f"({first_line(failed[0])})")
    processes = Processes(state.client, place.rank, place.count, limit, address_towards(place.host, place.port))
    watch = Watch(processes, place, coordinator, name)
    watch.start()
    return processes, watch


def of_runtime(limit=300):
    """The processes that jax.distributed.initialize made known."""
    from jax._src import distributed

    state = distributed.global_state
    if state.client is None:
        raise ProgramsError("the devices belong to several processes, and jax.distributed.initialize was not called")
    host, port = state.coordinator_address.rsplit(":", 1)
    return Processes(state.client, state.process_id, state.num_processes, limit, address_towards(host.strip("[]"), int(port))).started()


def address_towards(host, port):
    """This machine's address that process 0's machine sees."""
    try:
        family, kind, _, _, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            return probe.getsockname()[0]
    except OSError as error:
        raise ProgramsError(f"{host}, process 0's machine: {error.strerror}") from None


class Watch:
    """Says that this process is there, and ends it when another has failed or is lost, with the other's name."""

    def __init__(self, processes, place, coordinator, name):
        self._processes, self._client, self._place, self._coordinator = processes, processes.client, place, coordinator
        self._words = {}  # by process how many words of it this one has heard
        self.name = f"process {place.rank} ({name}, on {socket.gethostname()})"
        self._over = threading.Event()
        self._lock = threading.Lock()

    def start(self):
        self._client.key_value_set(f"automap/name/{self._place.rank}", self.name)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        heard, word = {}, 0
        while not self._over.wait(SAYS_EVERY_S):
            word += 1
            now = time.monotonic()
            try:
                self._client.key_value_set(f"automap/there/{self._place.rank}", str(word), allow_overwrite=True)
                said = dict(self._told("there"))
                failed = self._told("failed")
                names = dict(self._told("name"))
                done = dict(self._told("done"))
            except Exception as error:
                if not self._over.is_set():
                    self._end(f"the service that the processes meet at is lost ({first_line(error)})")
                return
            for rank, text in failed:
                if rank != self._place.rank:
                    self._end(f"{names.get(rank, f'process {rank}')} failed: {text}")
            for rank in range(self._place.count):
                if rank == self._place.rank or rank in done:
                    continue
                last, since = heard.get(rank, (None, now))
                limit = LOST_AFTER_S if self._processes.has_begun.is_set() else max(LOST_AFTER_S, self._processes.limit)
                if said.get(rank) != last:
                    heard[rank] = (said.get(rank), now)
                    self._words[rank] = self._words.get(rank, 0) + 1
                elif now - heard.setdefault(rank, (last, now))[1] > limit:
                    self._end(f"{names.get(rank, f'process {rank}')} is lost: it has said nothing for {limit:g} s")

    def _told(self, what):
        return [(int(key.rsplit("/", 1)[1]), text) for key, text in self._client.key_value_dir_get(f"automap/{what}/")]

    def _end(self, why):
        with self._lock:
            if not self._over.is_set():
                leave(f"{why}; {self.name} ends", 3)

    def wait_for_a_name(self):
        """What came from another process broke off: when that one is lost or has failed, this one ends here with its name."""
        others = [rank for rank in range(self._place.count) if rank != self._place.rank]
        before, until = dict(self._words), time.monotonic() + 3 * LOST_AFTER_S
        # The first new word may be from before it broke off. A failure is told before anything breaks off.
        while time.monotonic() < until and any(self._words.get(rank, 0) < before.get(rank, 0) + 3 for rank in others):
            time.sleep(SAYS_EVERY_S)

    def failed(self, text):
        """Tells the others why this process ends; they end within a second."""
        self._over.set()
        try:
            self._client.key_value_set(f"automap/failed/{self._place.rank}", text)
        except Exception:
            pass  # The service is lost, which the others notice themselves.

    def close(self):
        """At the end of a run that went well."""
        from jax._src import distributed

        with self._lock:
            self._over.set()
        try:
            self._client.key_value_set(f"automap/done/{self._place.rank}", "")
            self._client.shutdown()
            distributed.global_state.client = None
        except Exception as error:
            raise ProgramsError(f"{self.name} cannot take its leave of the others ({first_line(error)})") from None
        if self._coordinator:
            self._coordinator.close()


def leave(text, code):
    """Ends this process whatever its other threads wait for."""
    if text:
        sys.stderr.write(f"automap-run: error: {text}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
