"""DecodeParams: what is wanted of one image besides its pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.gpu.nvjpeg.resource import Resource

if TYPE_CHECKING:
    from gpubeton.gpu.nvjpeg.enumerations import ExifOrientation, OutputFormat, ScaleFactor


class DecodeParams(Resource):
    """What is wanted of one image: format, region, scale, orientation. Made by `Handle.make_params`.

    Not every backend knows every wish; `Handle.is_batch_supported` and `Decoder.is_supported` tell.

    Parameters
    ----------
    handle : Resource
        The handle.
    """

    def __init__(self, handle: Resource) -> None:
        super().__init__(
            handle.calls, "nvjpegDecodeParamsCreate", "nvjpegDecodeParamsDestroy", handle.pointer, parent=handle
        )

    def set_output_format(self, output_format: OutputFormat) -> None:
        """Set what is written. Batches ask for it when the state is initialised instead."""
        self.calls("nvjpegDecodeParamsSetOutputFormat", self.pointer, output_format)

    def set_region(self, left: int, top: int, width: int, height: int) -> None:
        """Decode a part alone, in pixels of the image as it comes out; it must lie inside."""
        self.calls("nvjpegDecodeParamsSetROI", self.pointer, left, top, width, height)

    def set_whole_image(self) -> None:
        """Decode all of the image again."""
        self.calls("nvjpegDecodeParamsSetROI", self.pointer, 0, 0, -1, -1)

    def set_allow_cmyk(self, is_allowed: bool) -> None:
        """Convert images of 4 components (CMYK, YCCK) to RGB instead of refusing them."""
        self.calls("nvjpegDecodeParamsSetAllowCMYK", self.pointer, int(is_allowed))

    def set_scale(self, scale: ScaleFactor) -> None:
        """Reduce the image while it is decoded; the backend HARDWARE alone."""
        self.calls("nvjpegDecodeParamsSetScaleFactor", self.pointer, scale)

    def set_orientation(self, orientation: ExifOrientation) -> None:
        """Turn the image from how the camera was held to upright; the backend HARDWARE alone."""
        self.calls("nvjpegDecodeParamsSetExifOrientation", self.pointer, orientation)
