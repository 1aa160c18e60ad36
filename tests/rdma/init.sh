#!/busybox sh
# The first process of the guest (vm.py): loads the modules, makes the host's files the root, under a
# layer in memory that takes all writes, and goes on with guest.sh there.
B=/busybox
$B mkdir -p /proc /dev /host /layer /root
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
for module in /m/*; do
    $B insmod "$module" || echo "insmod $module failed"
done
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose host /host ||
    echo "mounting the host's files failed"
$B mount -t tmpfs -o mode=755 layer /layer
$B mkdir -p /layer/up /layer/work
$B mount -t overlay -o lowerdir=/host,upperdir=/layer/up,workdir=/layer/work root /root ||
    echo "mounting the root failed"
cd /root || exit 1
$B mkdir -p proc sys dev run tmp
$B mount -t proc proc proc
$B mount -t sysfs sys sys
$B mount -t devtmpfs dev dev
$B mkdir -p dev/shm dev/pts
$B mount -t tmpfs -o mode=1777 shm dev/shm
$B mount -t devpts -o ptmxmode=666 pts dev/pts
$B ln -sfn /proc/self/fd dev/fd
$B mount -t tmpfs -o mode=755 run run
$B mkdir -p run/lock run/netns
$B cp /busybox run/
job=$($B sed 's/.*tutti_job=\([^ ]*\).*/\1/' /proc/cmdline)
here=$($B sed -n 's/^export TUTTI_VM_HERE=//p' "/root$job/job")
exec $B switch_root /root /bin/bash "$here/guest.sh" "$job" </dev/null >/dev/console 2>&1
