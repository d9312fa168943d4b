"""Make torchvision.npz: an image whose colors torchvision 0.29.2 changed.

Run it where torchvision is installed; the tests need only the result.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

ONE = 1 << 15
FACTORS = (0, 9_830, 24_576, 40_960, 62_259)  # in units of 2**-15
TURNS = (-16_384, -6_554, -1_638, 3_277, 10_814, 16_384)


def main() -> None:
    """Write the arrays beside this file, named after kind and factor."""
    import torch
    from torchvision.transforms.v2 import functional

    image = np.random.default_rng(0).integers(0, 256, (24, 20, 3), np.uint8)
    image[:4, :, :] = image[:4, :, :1]  # gray
    image[4:8, :, 1] = image[4:8, :, 0]  # two channels alike
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    arrays = {"image": image}
    for name in ("brightness", "contrast", "saturation"):
        for factor in FACTORS:
            arrays[f"{name} {factor}"] = getattr(functional, f"adjust_{name}")(tensor, factor / ONE)
    for turn in TURNS:
        arrays[f"hue {turn}"] = functional.adjust_hue(tensor, turn / ONE)
    results = {name: np.asarray(array if name == "image" else array.permute(1, 2, 0)) for name, array in arrays.items()}
    np.savez_compressed(Path(__file__).with_name("torchvision.npz"), **results)


if __name__ == "__main__":
    main()
