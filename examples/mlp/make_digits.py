#!/usr/bin/env python3
"""Writes the two IDX files of this folder from the copy of the data set that scikit-learn ships:
the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak; UCI Machine
Learning Repository, 1998, doi.org/10.24432/C50P49), licensed CC BY 4.0. 1,797 images of 8 x 8
pixels from 0 to 16. Run: pip install scikit-learn && python3 examples/mlp/make_digits.py"""

import os
import struct

from sklearn.datasets import load_digits


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    digits = load_digits()
    images, labels = digits.data.astype("uint8"), digits.target.astype("uint8")
    with open(os.path.join(folder, "digits-images-idx3-ubyte"), "wb") as out:
        out.write(struct.pack(">IIII", 0x803, len(images), 8, 8) + images.tobytes())
    with open(os.path.join(folder, "digits-labels-idx1-ubyte"), "wb") as out:
        out.write(struct.pack(">II", 0x801, len(labels)) + labels.tobytes())


main()
