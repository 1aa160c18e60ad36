# Compiles for 64-bit ARM on another machine, and runs what was compiled under qemu-user:
#     cmake -G Ninja -B build/arm -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake
# CONTRIBUTING.md says which packages that takes (Debian).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# Libraries of that machine only: pkg-config would find this one's.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
