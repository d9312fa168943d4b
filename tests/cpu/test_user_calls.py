"""What compiled code of users may call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest

from gpubeton.errors import OperationError
from gpubeton.fields import IntField
from gpubeton.fields.decoders import IntDecoder
from gpubeton.fields.jpeg import decode_rgb
from gpubeton.fields.rgb_image import IMAGE_MODES, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from gpubeton.libffcv import imdecode, memcpy, resize_crop
from gpubeton.loader import Loader
from gpubeton.pipeline import AllocationQuery, Compiler, Operation
from gpubeton.transforms import ToTensor
from tests.cpu.pictures import jpeg, noise, photo, pillow_jpeg
from tests.reference.weights import resize
from tests.small_files import damage, write, write_photos

NOTHING_ELSE = dict.fromkeys(["label", "weight", "note", "info", "vector"])


class Whole(SimpleRGBImageDecoder):
    """The corner of each image, decoded whole first: FFCV's decoders are written like this."""

    is_parallel = False

    def declare_state_and_memory(self, previous_state):
        heights, widths = self.metadata["height"], self.metadata["width"]
        size = np.uint64(heights.max()) * np.uint64(widths.max()) * np.uint64(3)
        levels = np.dtype("<u1")
        state = replace(previous_state, jit_mode=True, shape=(12, 10, 3), dtype=levels)
        return state, (AllocationQuery((12, 10, 3), levels), AllocationQuery((size,), levels))

    def generate_code(self):
        jpg, read, my_range = IMAGE_MODES["jpg"], self.memory_read, Compiler.get_iterator()
        decode_image, resize_image = Compiler.compile(imdecode), Compiler.compile(resize_crop)
        copy_bytes = Compiler.compile(memcpy)

        def decode(batch_indices, my_storage, metadata, storage_state):
            destination, room = my_storage
            for row in my_range(len(batch_indices)):
                field = metadata[batch_indices[row]]
                content = read(field["data_ptr"], storage_state)
                height, width = np.uint32(field["height"]), np.uint32(field["width"])
                if field["mode"] == jpg:
                    decode_image(content, room[row], height, width, height, width, 0, 0, 1, 1, False, False)
                else:
                    copy_bytes(content, room[row])
                image = room[row].reshape(-1)[: 3 * height * width].reshape(height, width, 3)
                resize_image(image, 2, 26, 3, 23, destination[row])
            return destination[: len(batch_indices)]

        decode.is_parallel = self.is_parallel
        return decode


class WholeInParallel(Whole):
    is_parallel = True


class Corner(RandomResizedCropRGBImageDecoder):
    """The same, as the library does it."""

    def boxes(self, heights, widths, uniform):
        return np.array([[2, 3, 24, 20]] * len(heights), np.int32)


class Calls(Operation):
    """Calls a function of the user's in each batch."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None

    def generate_code(self):
        function, arguments = self.call

        def run(labels, storage):
            function(*arguments)
            return labels

        return run


@pytest.fixture
def call_in_a_loader(tmp_path):
    """Call a function in the first batch of a loader."""
    path = write(tmp_path / "label.beton", {"label": IntField()}, [(1,)])

    def call(function, *arguments):
        pipelines = {"label": [IntDecoder(), Calls(function, *arguments)]}
        assert len(list(Loader(path, 1, num_workers=1, pipelines=pipelines))) == 1

    return call


def in_a_thread(function):
    thread = Thread(target=function)
    thread.start()
    thread.join()


def batches(path, decoder, num_workers=1):
    pipelines = {**NOTHING_ELSE, "image": [decoder, ToTensor()]}
    loader = Loader(path, 7, num_workers=num_workers, drop_last=False, pipelines=pipelines)
    return np.concatenate([batch.numpy() for (batch,) in loader])


@pytest.mark.parametrize("write_mode", ["raw", "jpg"])
@pytest.mark.parametrize(("decoder", "num_workers"), [(Whole, 1), (WholeInParallel, 2)])
def test_a_decoder_written_for_ffcv_gives_the_pixels_of_the_librarys(tmp_path, write_mode, decoder, num_workers):
    path = write_photos(tmp_path / "photos.beton", 20, write_mode=write_mode)
    result, expected = batches(path, decoder(), num_workers), batches(path, Corner((12, 10)))
    assert np.abs(result.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(("decoder", "num_workers"), [(Whole, 1), (WholeInParallel, 2)])
def test_an_image_that_cannot_be_decoded_reaches_the_loop_also_from_parallel_code(
    tmp_path, decoder, num_workers, call_in_a_loader
):
    path = write_photos(tmp_path / "photos.beton", 20)
    damage(path, 9)
    with pytest.raises(OperationError, match="imdecode: no JPEG file: ") as caught:
        batches(path, decoder(), num_workers)
    assert "batch 1 of epoch 0" in "".join(caught.value.__notes__)
    call_in_a_loader(lambda: 3)  # nothing is left of the error


@pytest.mark.parametrize("is_compiled", [True, False])
def test_bytes_are_copied_between_all_types(is_compiled, call_in_a_loader):
    copy = Compiler.compile(memcpy) if is_compiled else memcpy
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    dest = np.zeros(25, np.uint8)
    copy(source, dest)
    assert dest.tobytes() == source.tobytes() + b"\0"
    with pytest.raises(OperationError, match=r"memcpy: 24 .* 20"):
        call_in_a_loader(copy, source, dest[:20])
    assert dest[20:].tobytes() == source.tobytes()[20:] + b"\0"


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    "data", [jpeg(photo(33, 61, 1)), pillow_jpeg(photo(20, 30, 2), progressive=True), pillow_jpeg(noise(7, 5), "CMYK")]
)
def test_jpegs_of_any_kind_are_decoded_exactly(data, is_compiled):
    decode = Compiler.compile(imdecode) if is_compiled else imdecode
    expected = decode_rgb(data)
    height, width = expected.shape[:2]
    target = np.full(expected.size + 3, 9, np.uint8)
    content = np.frombuffer(data, np.uint8)
    decode(content, target, height, width, height, width, 0, 0, 1, 1, False, False)
    assert np.array_equal(target[:-3].reshape(expected.shape), expected)
    assert target[-3:].tolist() == [9, 9, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((61, 33), r"33 x 61 pixels \(height x width\), expected 61 x 33"),
        ((33, 61, 33, 61, 0, 0, 1, 1, True, False), "enable_crop, do_flip"),
        ((33, 61, 33, 61, 0, 0, 1, 1, False, True), "enable_crop, do_flip"),
        ((33, 61, 33, 61, 0, 0, 1, 2, False, False), "enable_crop, do_flip"),
    ],
)
def test_an_option_or_size_that_imdecode_lacks_is_reported(arguments, message, call_in_a_loader):
    content, target = np.frombuffer(jpeg(photo(33, 61, 1)), np.uint8), np.zeros((33, 61, 3), np.uint8)
    with pytest.raises(OperationError, match=message):
        call_in_a_loader(imdecode, content, target, *arguments)
    with pytest.raises(OperationError, match=r"6039 bytes.* 6038\n"):
        call_in_a_loader(imdecode, content, target.reshape(-1)[1:], 33, 61)
    assert not target.any()


def test_resizing_is_inter_area():
    image, small = noise(40, 50), np.empty((7, 9, 3), np.uint8)
    Compiler.compile(resize_crop)(image, 3, 33, 5, 41, small)
    assert np.abs(small - resize(image[3:33, 5:41], (7, 9), "area")).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("part", [(-1, 8, 0, 8), (0, 9, 0, 8), (0, 8, 4, 4), (0, 8, 0, 9), (0, 8, -1, 8), (8, 8, 0, 8)])
def test_a_part_that_is_none_is_refused(part, call_in_a_loader):
    image, small = noise(8, 8), np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(OperationError, match=r"resize_crop: .* 8 x 8"):
        call_in_a_loader(resize_crop, image, *part, small)
    assert not small.any()


def test_another_error_is_not_changed_and_carries_earlier_refusals(call_in_a_loader):
    def fails():
        raise KeyError("own")

    with pytest.raises(KeyError):
        call_in_a_loader(fails)

    def refused():
        with suppress(ValueError):
            memcpy(np.zeros(3, np.uint8), np.zeros(2, np.uint8))

    refused()
    refused()
    with pytest.raises(OperationError, match=r"^memcpy: 3 bytes .* of 2; .*\nin Calls") as caught:
        call_in_a_loader(fails)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(OperationError, match=r"^memcpy: 3 .* 2"):
        call_in_a_loader(in_a_thread, refused)
    call_in_a_loader(lambda: 3)
