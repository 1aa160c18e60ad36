"""Hello, all ranks: hello.c in Python. With Tutti installed in PREFIX:

    PYTHONPATH=PREFIX/lib/tutti-python tuttirun -n 4 python3 hello.py"""
import array

import tutti

COUNT = 1000

with tutti.Communicator.from_env() as comm:
    numbers = array.array("f", [comm.rank + i for i in range(COUNT)])
    comm.all_reduce(numbers)  # in place: what C, NumPy and PyTorch have in memory goes as it lies

    # Rank r gave r + i, so that the sum is 0 + 1 + ... + size-1, and size times i.
    first = comm.size * (comm.size - 1) // 2
    if list(numbers) != [first + comm.size * i for i in range(COUNT)]:
        raise SystemExit(f"hello: rank {comm.rank} has another sum")
    if comm.rank == 0:
        print(f"hello from {comm.size} ranks: sum[1] = {numbers[1]:g}, all {COUNT} as expected")
