"""Make augment.npz: an image that torchvision 0.28.0 solarized, blurred, turned and so on.

Run it where torchvision is installed; the tests need only the result. ``RandAugment 9 30 ShearX -`` is what bin 9 of 31
of that policy's operation makes of the image with the sign turned; ``RandAugment 30 ShearX`` are all its magnitudes.
``AutoAugment svhn`` are the pairs of that policy, in words; ``perspective bilinear`` has the corners `CORNERS`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

BINS = {"RandAugment": (9, 30), "TrivialAugmentWide": (17, 30)}


CORNERS = [[3, 2], [28, 5], [30, 20], [0, 17]]


def picture() -> np.ndarray:
    """Waves and some noise, and no black or white, uint8 of shape (24, 32, 3)."""
    y, x, channel = np.mgrid[:24, :32, :3]
    waves = 120 + 70 * np.sin(y / 5 + channel) * np.cos(x / (4 + channel)) + 20 * channel
    return (waves + np.random.default_rng(0).integers(-15, 16, waves.shape)).clip(11, 244).astype(np.uint8)


def main() -> None:
    """Write the arrays beside this file."""
    import torch
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional

    image = torch.from_numpy(picture()).permute(2, 0, 1).contiguous()
    results = {
        "solarize 100.5": functional.solarize(image, 100.5),
        "posterize 3": functional.posterize(image, 3),
        "invert": functional.invert(image),
        "autocontrast": functional.autocontrast(image),
        "equalize": functional.equalize(image),
    }
    for factor in (0, 16_384, 49_152, 98_304):
        results[f"sharpness {factor}"] = functional.adjust_sharpness(image, factor / 32_768)
    for size, sigma in ((3, 0.3), (5, 1.1), (9, 2.0), (23, 1.7), (23, 50.0)):
        results[f"blur {size} {sigma}"] = functional.gaussian_blur(image, [size, size], [sigma, sigma])
    for angle in (-33.5, 12.25, 90.0, 180.0):
        results[f"rotate bilinear {angle}"] = functional.rotate(image, angle, v2.InterpolationMode.BILINEAR)
        results[f"rotate nearest {angle}"] = functional.rotate(image, angle, fill=[1, 2, 3])
    for kind in ("bilinear", "nearest"):
        mode = v2.InterpolationMode(kind)
        results[f"affine {kind}"] = functional.affine(image, -20.0, [3.0, -2.0], 1.3, [10.0, -5.0], mode)
        start = [[0, 0], [31, 0], [31, 23], [0, 23]]
        results[f"perspective {kind}"] = functional.perspective(image, start, CORNERS, mode, fill=[1, 2, 3])
    arrays = {name: one.permute(1, 2, 0).numpy() for name, one in results.items()}
    for policy, bins in BINS.items():
        for name, (magnitudes, signed) in getattr(v2, policy)._AUGMENTATION_SPACE.items():
            table = magnitudes(31, 24, 32)
            arrays[f"{policy} 30 {name}"] = np.zeros(0) if table is None else table.numpy()
            for place in bins if table is not None else bins[:1]:
                for sign in ("+", "-") if signed else ("+",):
                    magnitude = 0.0 if table is None else float(table[place]) * (-1 if sign == "-" else 1)
                    change = getattr(v2, policy)(fill=[1, 2, 3])
                    result = change._apply_image_or_video_transform(
                        image, name, magnitude, interpolation=change.interpolation, fill=change._fill
                    )
                    arrays[f"{policy} {place} {name} {sign}"] = result.permute(1, 2, 0).numpy()
    for policy in ("AutoAugment", "AugMix"):
        for name, (magnitudes, _) in getattr(v2, policy)._AUGMENTATION_SPACE.items():
            table = magnitudes(10, 24, 32)
            arrays[f"{policy} 10 {name}"] = np.zeros(0) if table is None else table.numpy()
    for policy in v2.AutoAugmentPolicy:
        arrays[f"AutoAugment {policy.value}"] = np.array(v2.AutoAugment(policy)._policies, str)
    np.savez_compressed(Path(__file__).with_name("augment.npz"), image=picture(), **arrays)


if __name__ == "__main__":
    main()
