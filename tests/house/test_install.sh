#!/usr/bin/env bash
# The installed library serves examples/hello.c by one command of pkg-config, shared and static, and
# by find_package, alone and as two ranks; the prefix can be moved; the installed programs start:
# test_install.sh CC
set -euo pipefail
compiler=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
hello=$TUTTI_SOURCE/examples/hello.c

# Installed in one place, used from another.
cmake --install "$TUTTI_BUILD" --prefix "$folder/first" >"$folder/install.log"
mv "$folder/first" "$folder/prefix"
libraries=$(dirname "$(find "$folder/prefix" -name libtutti.so)")
export PKG_CONFIG_PATH=$libraries/pkgconfig

# meet PROGRAM: as two ranks, with the variables that torchrun sets.
meet() {
    local port status=0
    port=$((29300 + $$ % 300)) # not one that the kernel gives to others
    rank() {
        env -i PATH="$PATH" LD_LIBRARY_PATH="$libraries" RANK="$1" WORLD_SIZE=2 LOCAL_RANK="$1" \
            LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" timeout 60 "$2"
    }
    rank 1 "$1" >rank1 2>&1 &
    rank 0 "$1" >rank0 2>&1 || status=$?
    wait $! || status=$?
    if [ $status != 0 ] || [[ $(cat rank0) != "hello from 2 ranks: sum[1] = 3,"* ]]; then
        echo "two ranks of $1: status $status"
        cat rank0 rank1
        exit 1
    fi
}

# greets PROGRAM: as a single rank, whatever launcher this test runs under.
greets() {
    local output
    output=$(env -i PATH="$PATH" LD_LIBRARY_PATH="$libraries" timeout 60 "$1")
    [[ $output == "hello from 1 ranks: sum[1] = 1,"* ]] || { echo "$1 says: $output"; exit 1; }
}

cd "$folder"
# shellcheck disable=SC2046 # words are wanted
"$compiler" "$hello" -Wall -Werror -o shared $(pkg-config --cflags --libs tutti)
greets ./shared
meet ./shared
ldd ./shared >needed 2>&1 || true
grep -q libtutti.so.0 needed

# Tokens go to experts and come back, three ranks by the installed launcher.
# shellcheck disable=SC2046
"$compiler" "$TUTTI_SOURCE/examples/experts.c" -Wall -Werror -o experts $(pkg-config --cflags --libs tutti)
env -i PATH="$PATH" LD_LIBRARY_PATH="$libraries" timeout 60 "$folder/prefix/bin/tuttirun" -n 3 ./experts >experts.txt
[ "$(grep -c 'all 4096 of its own are back as expected$' experts.txt)" = 3 ] || { cat experts.txt; exit 1; }

# From Python, by the package that is installed beside the library.
env -i PATH="$PATH" PYTHONPATH="$libraries/tutti-python" PYTHONDONTWRITEBYTECODE=1 timeout 60 \
    "$folder/prefix/bin/tuttirun" -n 3 python3 "$TUTTI_SOURCE/examples/hello.py" >python.txt
grep -q '^\[0\] hello from 3 ranks: sum\[1\] = 6, all 1000 as expected$' python.txt || { cat python.txt; exit 1; }

# The machine as the installed library sees it: this one, and one that is described.
# shellcheck disable=SC2046
"$compiler" "$TUTTI_SOURCE/examples/show_machine.c" -Wall -Werror -o show_machine \
    $(pkg-config --cflags --libs tutti)
for line in "" "2 hosts x 8 gpus, nvlink 450, 8 nics 50, 8 switches"; do
    env -i PATH="$PATH" LD_LIBRARY_PATH="$libraries" ./show_machine ${line:+"$line"} >machine.txt
    grep -q '^host' machine.txt || { echo "machine \"$line\" says: $(cat machine.txt)"; exit 1; }
done
grep -q '^gpu 7 sends by nic 7: same PCI switch$' machine.txt || { cat machine.txt; exit 1; }
grep -q '^8 rings of 50 GB/s; the first: 0 1 ' machine.txt || { cat machine.txt; exit 1; }

# The static library: what pkg-config names beside -ltutti must be all that it needs.
# shellcheck disable=SC2046
"$compiler" "$hello" -Wall -Werror -o static -L"$libraries" \
    $(pkg-config --cflags --libs --static tutti | sed 's/-ltutti/-l:libtutti.a/')
greets ./static
ldd ./static >needed 2>&1 || true
if grep -q libtutti needed; then
    echo "the static program needs libtutti.so"
    exit 1
fi

cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C)
find_package(tutti 0.1 REQUIRED)
add_executable(by_cmake "$hello")
target_link_libraries(by_cmake tutti::tutti)
add_executable(by_cmake_static "$hello")
target_link_libraries(by_cmake_static tutti::tutti_static)
END
{
    cmake -S . -B user -DCMAKE_C_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$folder/prefix" &&
        cmake --build user
} >user.log 2>&1 || { cat user.log; exit 1; }
greets user/by_cmake
greets user/by_cmake_static

# Each installed program starts without the build folder; those that tests use are not among them.
for name in tuttirun tutti-plan allreduce_bench broadcast_bench; do
    [ -x "$folder/prefix/bin/$name" ] || { echo "$name is not installed"; exit 1; }
done
[ ! -e "$folder/prefix/bin/place_print" ]
for program in "$folder/prefix/bin"/*; do
    status=0
    timeout 20 "$program" --help >help 2>&1 </dev/null || status=$?
    if [ $status -gt 2 ] || [ ! -s help ]; then
        echo "$program --help: status $status"
        cat help
        exit 1
    fi
done
