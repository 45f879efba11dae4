#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# First program of a guest of `softhca vm`: mounts, names, network, the RDMA drivers; then the agent.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
here=/softhca
mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
. $here/settings
hostname "$GUEST_NAME"
echo "$GUEST_NAME" >/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost ip6-localhost\n10.0.2.2 host\n' "$GUEST_NAME" >/etc/hosts
ln -sf $here/agent /usr/local/sbin/reboot
ln -sf $here/agent /usr/local/sbin/poweroff
ip link set lo up
modprobe -qa virtio_console virtio_net
if ip link set eth0 up 2>/dev/null; then
  ip address add 10.0.2.15/24 dev eth0
  ip route add default via 10.0.2.2
fi
ulimit -l unlimited
[ -z "$GUEST_MODULES" ] || modprobe -a $GUEST_MODULES
if [ -n "$TERMINAL_SIZE" ]; then stty $TERMINAL_SIZE </dev/console; fi
export TERM=${TERMINAL:-linux}
cd /root
exec $here/agent
