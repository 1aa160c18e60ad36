#!/usr/bin/env bash
# check_layers finds an upward include, a sideways one, an upward link, a path without a room.
set -euo pipefail
# shellcheck source=tests/house/planting.sh
. "$TUTTI_SOURCE/tests/house/planting.sh"

layers="$checks/check_layers"
passes "$layers" "$tree"

# plant FILE TEXT MESSAGE: FILE with TEXT is found with MESSAGE; afterwards the tree is as before.
plant() {
    mkdir -p "$(dirname "$tree/$1")"
    echo "$2" >"$tree/$1"
    finds "$3" "$layers" "$tree"
    rm "$tree/$1"
}
plant base/up.c '#include "plan/plan.h"' "base/up.c:1: base/ may not include plan/"
plant base/up.c '  #  include "tests/x.h"' "base/ may not include tests/"
plant transport/side.c '#include "launch/boot.h"' "transport/ may not include launch/"
plant launch/side.c '#include "transport/registry.h"' "launch/ may not include transport/"
plant coll/algorithms/deep.c '#include "device/reduce.h"' "coll/algorithms/ may not include device/"
plant coll/algorithms/deep.c '#include "coll/comm.h"' "coll/algorithms/ may not include coll/"
plant coll/up.c '#include "bench/sweep.h"' "coll/ may not include bench/"
plant examples/side.c '#include "nccl/nccl.h"' "examples/ may not include nccl/"
plant plan/socket.c '#include <sys/socket.h>' "no system header beyond standard C"
plant include/tutti/extra.h '#include <unistd.h>' "no system header beyond standard C"
plant include/tutti/extra.h '#include "base/text.h"' "include/ may not include base/"
plant base/short.c '#include "text.h"' "does not start with a room"
plant coll/kernel.cu 'int x;' "coll/kernel.cu: device code lives in device/cuda/"
plant elsewhere/lost.c 'int x;' "is in no room"
plant base/CMakeLists.txt 'tti_room(base SOURCES text.c LINKS tti_plan)' "may not link tti_plan"
plant coll/algorithms/CMakeLists.txt 'target_link_libraries(tti_algorithms PUBLIC tti_device)' \
    "coll/algorithms/ may not link tti_device"
passes "$layers" "$tree"
