# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Block and file storage over RDMA between two guests, by the kernel's own targets and initiators: these register memory
by work requests (FRWR), connect through RDMA CM or IB CM, and every byte is verified by fio."""
import re

from check import Group
from checks_driver import HARMLESS, wait_for_ports
from guests import Failure, wait_until

SERVER, CLIENT = "192.168.7.1", "192.168.7.2"
# What the kernel's own targets say of a healthy device: ib_srpt looks for the longest send queue by trying, and reports
# the receives that a disconnect flushes.
SAID_BY_TARGETS = re.compile("Create QP type 2 failed|receiving failed for ioctx|Received SRP_LOGIN_REQ|set_port_caps")

FIO = ("fio --name=verify --filename={target} --size={mib}m --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite "
       "--bsrange=4k-128k --randseed=7 --verify=crc32c --verify_fatal=1 --do_verify=1")


def two_storage_guests(fabric):
    guests = fabric.guest("server", hcas=1), fabric.guest("client", hcas=1)
    for guest, address in zip(guests, (SERVER, CLIENT)):
        wait_for_ports(guest, 1)
        guest.run(f"ip address add {address}/24 dev ib0; ip link set ib0 up; "
                  "mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config")
    for guest in guests:
        wait_until(60, f"ib0 of {guest.name} has a carrier",
                   lambda guest=guest: guest.run("cat /sys/class/net/ib0/operstate", check=False).out == "up\n")
    yield guests


storage = Group("storage", two_storage_guests)


def fio_verify(guest, target, mib=8):
    """Writes at random places, reads everything back, compares checksums."""
    out = guest.run(FIO.format(target=target, mib=mib), timeout=240).out
    if not re.search(r"err= 0", out):
        raise Failure(out)
    return out


NVME_TARGET = f"""
set -e
modprobe brd rd_nr=1 rd_size=32768
modprobe -a nvmet nvmet-rdma
cd /sys/kernel/config/nvmet
mkdir subsystems/softhca
echo 1 > subsystems/softhca/attr_allow_any_host
mkdir subsystems/softhca/namespaces/1
echo -n /dev/ram0 > subsystems/softhca/namespaces/1/device_path
echo 1 > subsystems/softhca/namespaces/1/enable
mkdir ports/1
cd ports/1
echo rdma > addr_trtype; echo ipv4 > addr_adrfam; echo {SERVER} > addr_traddr; echo 4420 > addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/softhca subsystems/softhca
"""


@storage.check
def nvme_over_fabrics(guests):
    """nvme-rdma against nvmet-rdma with a RAM disk: connect, fio verify, disconnect."""
    server, client = guests
    server.run(NVME_TARGET, timeout=120)
    client.run(f"modprobe nvme-rdma && nvme connect -t rdma -a {SERVER} -s 4420 -n softhca", timeout=120)
    client.run("test -b /dev/nvme0n1 && nvme list")
    fio_verify(client, "/dev/nvme0n1")
    client.run("nvme disconnect -n softhca", timeout=120)
    server.run("rm /sys/kernel/config/nvmet/ports/1/subsystems/softhca")


NFS_SERVER = """
set -e
mkdir -p /export /run/rpc_pipefs
mount -t tmpfs -o size=128m tmpfs /export
echo '/export *(rw,fsid=0,no_root_squash,insecure,no_subtree_check)' > /etc/exports
modprobe -a rpcrdma nfsd
mount -t nfsd nfsd /proc/fs/nfsd 2>/dev/null || true
mount -t rpc_pipefs rpc /run/rpc_pipefs 2>/dev/null || true
# No grace period: nobody reclaims locks of an earlier server.
echo 1 > /proc/fs/nfsd/nfsv4gracetime 2>/dev/null || true
exportfs -ra
rpc.nfsd -N 3 -V 4 --rdma=20049 2
rpc.mountd -N 3
grep -q 'rdma 20049' /proc/fs/nfsd/portlist
"""


@storage.check
def nfs_over_rdma(guests):
    """An NFS 4.2 mount with proto=rdma: fio verify; the server sees what the client wrote."""
    server, client = guests
    server.run(NFS_SERVER, timeout=120)
    client.run(f"mkdir -p /mnt/nfs; modprobe rpcrdma; mount -t nfs -o rdma,port=20049,vers=4.2 {SERVER}:/ /mnt/nfs",
               timeout=120)
    client.run("grep -q 'proto=rdma' /proc/mounts")
    fio_verify(client, "/mnt/nfs/file")
    wanted = client.run("sync; md5sum < /mnt/nfs/file").out
    seen = server.run("md5sum < /export/file").out
    if wanted != seen:
        raise Failure(f"the file differs: client {wanted}, server {seen}")
    client.run("umount /mnt/nfs", timeout=120)
    server.run("rpc.nfsd 0", timeout=60)


SRP_TARGET = """
set -e
modprobe -a target_core_mod ib_srpt
cd /sys/kernel/config/target
mkdir -p core/rd_mcp_0/disk
echo rd_pages=4096 > core/rd_mcp_0/disk/control
echo 1 > core/rd_mcp_0/disk/enable
port=srpt/0x{target}/0x{target}
mkdir -p $port/lun/lun_0 $port/acls/0x0000000000000000{initiator}/lun_0
ln -s $PWD/core/rd_mcp_0/disk $port/lun/lun_0/disk
ln -s $PWD/$port/lun/lun_0 $port/acls/0x0000000000000000{initiator}/lun_0/lun
echo 1 > $port/enable
"""


def gid(guest):
    return guest.run("tr -d : < /sys/class/infiniband/mlx5_0/ports/1/gids/0").out.strip()


@storage.check
def srp(guests):
    """ib_srp against ib_srpt, found by node GUID and connected through IB CM: fio verify."""
    server, client = guests
    target, initiator = gid(server), gid(client)
    service = target[16:]
    server.run(SRP_TARGET.format(target=target, initiator=initiator[16:]), timeout=120)
    client.run(f"modprobe -a ib_srp sd_mod; echo id_ext={service},ioc_guid={service},dgid={target},pkey=ffff,"
               f"service_id={service} > /sys/class/infiniband_srp/srp-mlx5_0-1/add_target", timeout=120)
    wait_until(60, "the disk is there", lambda: client.run("test -b /dev/sda", check=False).status == 0)
    fio_verify(client, "/dev/sda", mib=4)
    client.run("for port in /sys/class/srp_remote_ports/*; do echo 1 > $port/delete; done", timeout=60)


@storage.check
def storage_is_silent(guests):
    """After all that neither kernel complains."""
    for guest in guests:
        lines = [line for line in guest.complaints().splitlines()
                 if not HARMLESS.search(line) and not SAID_BY_TARGETS.search(line)]
        if lines:
            raise Failure(f"the kernel of {guest.name} complains:\n" + "\n".join(lines))
