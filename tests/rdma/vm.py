#!/usr/bin/env python3
"""A small virtual machine with soft-RoCE: real RDMA verbs on a machine without RDMA devices.

    vm.py --setup                  fetch a Debian kernel and make what boots it (once)
    vm.py [--timeout S] COMMAND... run COMMAND in the machine, and end with its status

qemu emulates the processor, so nothing of the host's kernel or hardware is needed. The guest sees
the host's files as they are, read-only; what it writes goes to its own memory and vanishes. It has
four RoCE devices, rxe0 to rxe3, on two pairs of virtual cables: e0 10.9.0.1 - e1 10.9.0.2 and
e2 10.9.1.1 - e3 10.9.1.2. Its output comes over serial ports; init.sh and guest.sh are its insides.

Exit status: that of COMMAND; 77 when this machine lacks something (it says what); 124 when the time
is over; 125 when the machine itself broke.
"""
import argparse
import io
import lzma
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
CACHE = os.environ.get("TUTTI_RDMA_VM") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tutti", "rdma-vm")
# In this order: what the first steps of the guest need, then the network and its devices.
MODULES = ("virtio_pci virtio_console 9pnet_virtio 9p overlay "
           "crc32_generic libcrc32c ib_uverbs rdma_rxe veth sch_netem").split()
# Whole folders of modules that nothing here depends on.
UNUSED = re.compile(r"/kernel/(sound|drivers/(gpu|media|scsi|usb|iio|staging|hid|input|ata|mmc|mtd|"
                    r"net/(ethernet|wireless|can|usb)|platform|hwmon|i2c|leds|power|rtc|spi|video|"
                    r"watchdog|thermal|thunderbolt|target|nvme|md|isdn|comedi|bluetooth)|"
                    r"fs/(?!9p|fscache|netfs|overlayfs)[a-z0-9_]+)/")
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static",
            "modprobe": "kmod", "depmod": "kmod", "ip": "iproute2", "rdma": "iproute2",
            "dpkg-deb": "dpkg", "apt-get": "apt", "setsid": "util-linux"}
# clocksource: how fast the time stamp counter runs is measured while booting, and on a busy host that
# has gone wrong by a factor of ten: every deadline in the guest was over at once.
BOOT = ("console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr mitigations=off init_on_alloc=0 "
        "cryptomgr.notests=1 clocksource=hpet tsc=reliable no_timer_check nowatchdog audit=0 random.trust_cpu=on "
        "initcall_blacklist=init_kprobe_trace,load_system_certificate_list,i8042_init")
SKIPPED, LATE, BROKEN = 77, 124, 125


def end(status, text):
    """Say why, and end."""
    print(f"vm.py: {text}", file=sys.stderr)
    sys.exit(status)


def need_programs():
    """All programs that the host needs, or the end."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = sorted({package for program, package in PROGRAMS.items()
                      if not shutil.which(program)})
    if missing:
        end(SKIPPED, f"SKIPPED: packages are missing: {' '.join(missing)}; run ./dev setup")


# ---- once: a kernel ----------------------------------------------------------------------------


def fetch(folder):
    """The Debian package with the kernel; its path."""
    told = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True,
                          text=True, check=False).stdout
    found = re.search(r"Depends: (linux-image-\S+)", told)
    if not found:
        end(SKIPPED, "SKIPPED: apt knows no linux-image-amd64 here (Debian has it)")
    done = subprocess.run(["apt-get", "download", found[1]], cwd=folder, capture_output=True,
                          text=True, check=False)
    packages = [name for name in os.listdir(folder) if name.endswith(".deb")]
    if done.returncode or not packages:
        end(SKIPPED, f"SKIPPED: apt-get download {found[1]}: {done.stderr.strip()}")
    return os.path.join(folder, packages[0])


def unpack(package, folder):
    """Kernel and modules, without folders of modules that are of no use; the kernel's version."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as tar:
        with tarfile.open(fileobj=tar.stdout, mode="r|") as archive:
            for entry in archive:
                path = entry.name.lstrip("./").removeprefix("usr/")
                if not entry.isfile() or UNUSED.search(path) or \
                        not path.startswith(("boot/vmlinuz", "lib/modules/")):
                    continue
                to = os.path.join(folder, path)
                os.makedirs(os.path.dirname(to), exist_ok=True)
                with open(to, "wb") as file:
                    shutil.copyfileobj(archive.extractfile(entry), file)
    return os.listdir(os.path.join(folder, "lib/modules"))[0]


def plain_kernel(image):
    """The kernel without its wrapping: unpacking itself takes seconds under emulation."""
    start = image.find(b"\xfd7zXZ\0")
    if start < 0:
        return image
    try:
        kernel = lzma.LZMADecompressor().decompress(image[start:])
    except lzma.LZMAError:
        return image
    return kernel if kernel.startswith(b"\x7fELF") else image


def module_files(folder, version):
    """The files of MODULES and of all that they depend on, in the order to load them."""
    subprocess.run(["depmod", "-b", folder, version], check=True)
    told = subprocess.run(["modprobe", "-S", version, "-d", folder, "--show-depends", "-a",
                           *MODULES], capture_output=True, text=True, check=True).stdout
    files = [line.split()[1] for line in told.splitlines() if line.startswith("insmod")]
    return list(dict.fromkeys(files))


def archive_entry(out, name, mode, data=b""):
    """One file of an initial file system (format newc of cpio)."""
    raw = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0]
    out.write(b"070701" + b"".join(b"%08x" % field for field in fields) + raw)
    out.write(b"\0" * (-out.tell() % 4))
    out.write(data)
    out.write(b"\0" * (-out.tell() % 4))


def initial_files(files):
    """busybox, the modules and init.sh as an archive that the kernel unpacks."""
    out = io.BytesIO()
    archive_entry(out, "m", 0o40755)
    with open(shutil.which("busybox"), "rb") as file:
        archive_entry(out, "busybox", 0o100755, file.read())
    with open(os.path.join(HERE, "init.sh"), "rb") as file:
        archive_entry(out, "init", 0o100755, file.read())
    for number, path in enumerate(files):
        with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
            name = os.path.basename(path).removesuffix(".xz")
            archive_entry(out, f"m/{number:02}-{name}", 0o100644, file.read())
    archive_entry(out, "TRAILER!!!", 0)
    return out.getvalue()


def setup():
    """Make the cache: kernel, initial files. A half-made one is never seen."""
    os.makedirs(os.path.dirname(CACHE), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(CACHE)) as work:
        made = os.path.join(work, "made")
        os.mkdir(made)
        version = unpack(fetch(work), work)
        with open(os.path.join(work, "boot", f"vmlinuz-{version}"), "rb") as file:
            kernel = plain_kernel(file.read())
        with open(os.path.join(made, "kernel"), "wb") as file:
            file.write(kernel)
        with open(os.path.join(made, "initial"), "wb") as file:
            file.write(initial_files(module_files(work, version)))
        shutil.rmtree(CACHE, ignore_errors=True)
        os.rename(made, CACHE)
    print(f"vm.py: kernel {version} is in {CACHE}")


def fresh():
    """Is the cache there, and newer than what it was made of?"""
    try:
        made = os.stat(os.path.join(CACHE, "initial")).st_mtime
    except FileNotFoundError:
        return False
    return made > os.stat(os.path.join(HERE, "init.sh")).st_mtime


# ---- running -----------------------------------------------------------------------------------


def accelerator():
    """kvm where the processor's own extensions carry it, else emulation."""
    real = any(os.path.isdir(f"/sys/module/kvm_{maker}") for maker in ("intel", "amd"))
    return "kvm" if real and os.access("/dev/kvm", os.W_OK) else "tcg"


def machine(work, options):
    """qemu's command line. Without erms, the promise that `rep movsb` is the best way to copy: qemu
    goes by it byte by byte, which makes up a third of all time."""
    command = ["qemu-system-x86_64", "-machine", f"q35,accel={accelerator()}", "-cpu",
               "max,-la57,-erms", "-smp", str(options.cpus), "-m", str(options.memory), "-nodefaults",
               "-no-user-config", "-display", "none", "-no-reboot",
               "-serial", f"file:{work}/console",
               "-fsdev", "local,id=host,path=/,security_model=none,multidevs=remap,readonly=on",
               "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
               "-device", "virtio-serial-pci"]
    for port in ("out", "err", "status"):
        command += ["-chardev", f"file,id={port},path={work}/{port}",
                    "-device", f"virtserialport,chardev={port},name={port}"]
    return command + ["-kernel", os.path.join(CACHE, "kernel"), "-initrd",
                      os.path.join(CACHE, "initial"), "-append", f"{BOOT} tutti_job={work}"]


def write_job(work, command):
    """What the guest shall run, and as whom: our folder and environment."""
    kept = {name: value for name, value in os.environ.items() if name.isidentifier()}
    with open(os.path.join(work, "job"), "w", encoding="utf-8") as file:
        file.write(f"export TUTTI_VM_HERE={HERE}\n")
        for name, value in kept.items():
            file.write(f"export {name}={shlex.quote(value)}\n")
        file.write(f"cd {shlex.quote(os.getcwd())} || exit 127\n"
                   f"exec {shlex.join(command)}\n")


def relay(path, stream):
    """Pass on what the guest writes until the pipe is closed."""
    with open(path, "rb", buffering=0) as pipe:
        while data := pipe.read(65536):
            stream.buffer.write(data)
            stream.flush()


def console_tail(work):
    """The kernel's last words."""
    try:
        with open(os.path.join(work, "console"), "r", errors="replace", encoding="utf-8") as file:
            return "".join(file.readlines()[-25:])
    except FileNotFoundError:
        return ""


def run(options):
    """Boot, run, report; the status to end with."""
    with tempfile.TemporaryDirectory(prefix="tutti-vm-") as work:
        write_job(work, options.command)
        relays = []
        for port, stream in (("out", sys.stdout), ("err", sys.stderr)):
            os.mkfifo(os.path.join(work, port))
            relays.append(threading.Thread(target=relay, args=(os.path.join(work, port), stream),
                                           daemon=True))
            relays[-1].start()
        begun = time.monotonic()
        with subprocess.Popen(machine(work, options), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as emulator:
            signal.signal(signal.SIGTERM, lambda *_: emulator.kill())
            try:
                said, _ = emulator.communicate(timeout=options.timeout)
            except subprocess.TimeoutExpired:
                emulator.kill()
                end(LATE, f"the time of {options.timeout} s is over\n{console_tail(work)}")
        for each in relays:
            each.join(2)
        if options.verbose:
            print(f"vm.py: {time.monotonic() - begun:.1f} s, {accelerator()}", file=sys.stderr)
        try:
            with open(os.path.join(work, "status"), encoding="utf-8") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            end(BROKEN, f"the machine gave no status\n{said}{console_tail(work)}")


def main():
    """See the top."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--setup", action="store_true", help="fetch and prepare a kernel")
    parser.add_argument("--timeout", type=float, default=300, metavar="S")
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="tell how long it took")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command[:1] == ["--"]:
        del options.command[0]
    need_programs()
    if options.setup or not fresh():
        setup()
    if not options.command:
        return 0 if options.setup else parser.error("no command")
    return run(options)


sys.exit(main())
