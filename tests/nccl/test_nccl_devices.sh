#!/usr/bin/env bash
# The ranks that one thread makes in a group are near their own devices, not near those that the group's threads have
# current, which is none: test_nccl_devices.sh PROGRAM, whose case "devices" makes rank 0 on device 1 and rank 1 on 0.
set -euo pipefail
said=$(TUTTI_DEVICE=sim TUTTI_SIM_DEVICES=2 TUTTI_LOG=debug TUTTI_IFNAME=lo "$1" devices 2>&1) || {
    echo "$said"
    exit 1
}
# Twice each: by the group, and by a split.
for address in ffff:01:00.0 ffff:00:00.0; do
    [ "$(grep -c "this rank's device is at $address\$" <<<"$said")" = 2 ] || {
        echo "$said"
        echo "FAILED: not two ranks at $address"
        exit 1
    }
done
echo "two devices, two ranks each: as expected"
