"""Two network namespaces with a wire between them that delays and loses packets. The wire is this process: it reads the
packets of a TUN device in one namespace and writes them into the other's. The kernels that tests run on often have no netem."""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def why_not():
    """Why there can be no such network here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if subprocess.run(["which", "ip"], capture_output=True).returncode:
        return "no ip (Debian package iproute2)"
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun"
    name = f"am{os.getpid()}p"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces are not allowed here"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


class LossyNetwork:
    """Namespaces 0 and 1 with addresses[0] and addresses[1]; `cut` drops everything."""

    def __init__(self, delay_s=0.02, loss=0.01, seed=1):
        self.delay_s, self.loss, self.random = delay_s, loss, random.Random(seed)
        self.names = [f"am{os.getpid()}n{i}" for i in (0, 1)]
        self.addresses = ["10.77.0.1", "10.77.0.2"]
        self.cut, self.over = False, False
        self.packets, self.lost = 0, 0
        self.devices = []
        try:
            for i in (0, 1):
                self.build(i)
        except Exception:
            self.close()
            raise
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    def build(self, i):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self.devices.append(device)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", self.names[i].encode(), IFF_TUN | IFF_NO_PI))
        for command in (f"ip netns add {self.names[i]}", f"ip link set {self.names[i]} netns {self.names[i]}",
                        f"ip -n {self.names[i]} link set lo up", f"ip -n {self.names[i]} link set {self.names[i]} up",
                        f"ip -n {self.names[i]} addr add {self.addresses[i]} peer {self.addresses[1 - i]} dev {self.names[i]}"):
            subprocess.run(command.split(), check=True, capture_output=True)

    def carry(self):
        waiting, count = [], 0
        while not self.over:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(waiting)
                if not self.cut:
                    try:
                        os.write(self.devices[to], packet)
                    except OSError:
                        pass
            ready, _, _ = select.select(self.devices, [], [], min(0.05, waiting[0][0] - now) if waiting else 0.05)
            for device in ready:
                try:
                    packet = os.read(device, 65536)
                except OSError:
                    continue
                self.packets += 1
                if self.cut or self.random.random() < self.loss:
                    self.lost += 1
                    continue
                count += 1
                heapq.heappush(waiting, (time.monotonic() + self.delay_s, count, 1 - self.devices.index(device), packet))

    def inside(self, i, *command):
        """The command to run in namespace i."""
        return ["ip", "netns", "exec", self.names[i], *map(str, command)]

    def close(self):
        self.over = True
        if hasattr(self, "thread"):
            self.thread.join()
        for device in self.devices:
            os.close(device)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
