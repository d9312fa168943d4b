"""gpubeton as a decoder of imread_benchmark (github.com/ternaus/imread_benchmark)."""

from __future__ import annotations

from typing import Any

from imread_benchmark.decoders import BaseDecoder


class GpubetonDecoder(BaseDecoder):  # type: ignore[misc]  # no part of this environment
    """Decode with `gpubeton.decode_image`: the pixels of libjpeg-turbo's slow integer DCT, in one thread."""

    name = "gpubeton"
    package_name = "gpubeton"

    def decode(self, data: bytes) -> Any:
        """Decode a JPEG file: uint8, (H, W, 3), RGB."""
        import gpubeton

        return gpubeton.decode_image(data)
