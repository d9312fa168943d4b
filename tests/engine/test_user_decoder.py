from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields import BytesField, Field, IntField, NDArrayField
from gpubeton.fields.base import ARG_TYPE
from gpubeton.fields.decoders import (
    BytesDecoder,
    IntDecoder,
    NDArrayDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.registry import open_index
from gpubeton.loader import Loader
from gpubeton.pipeline import AllocationQuery, Compiler, Operation, PipelineSpec, State
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from tests.small_files import picture, write, write_photos


class Lengths(Operation):
    """The length of each value, and their sum, found by reading them as FFCV's decoders do."""

    jit_mode = True
    is_parallel = False

    def declare_state_and_memory(self, previous_state):
        query = AllocationQuery((2,), np.dtype("<i8"))
        return replace(previous_state, jit_mode=self.jit_mode, shape=(2,), dtype=np.dtype("<i8")), query

    def generate_code(self):
        read, my_range = self.memory_read, Compiler.get_iterator()

        def code(indices, destination, metadata, storage_state):
            for row in my_range(len(indices)):
                content = read(metadata[indices[row]]["ptr"], storage_state)
                destination[row, 0] = len(content)
                destination[row, 1] = content.sum()
            return destination[: len(indices)]

        code.is_parallel = self.is_parallel
        return code


class PlainLengths(Lengths):
    jit_mode = False


class ParallelLengths(Lengths):
    is_parallel = True


class PairDecoder(Operation):
    """Two values that the field's class knows where to find."""

    def declare_state_and_memory(self, previous_state):
        query = AllocationQuery((2, 12), np.dtype("u1"))
        return replace(previous_state, jit_mode=False, shape=(2, 12), dtype=np.dtype("u1")), query

    def generate_code(self):
        read = self.memory_read

        def code(indices, destination, metadata, storage_state):
            for row in range(len(indices)):
                place = metadata[indices[row]]
                destination[row, 0] = read(place["left"], storage_state)
                destination[row, 1] = read(place["right"], storage_state)
            return destination

        return code


class PairField(Field):
    """Two arrays with a region each."""

    metadata_type = np.dtype([("left", "<u8"), ("weight", "<f4"), ("right", "<u8")])

    @staticmethod
    def from_binary(_):
        return PairField()

    def to_binary(self):
        return np.zeros(1, ARG_TYPE)[0]

    def get_decoder_class(self):
        return PairDecoder

    def encode(self, destination, value, malloc):
        for name, array in zip(("left", "right"), value, strict=True):
            destination[name], region = malloc(12)
            region[:] = np.frombuffer(array.tobytes(), np.uint8)


class Samples:
    def __len__(self):
        return 20

    def __getitem__(self, number):
        values = np.arange(number % 6, dtype=np.uint8)
        pair = [np.full(3, number + side, np.float32) for side in (0.25, 0.5)]
        return values, pair, number


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    fields = {"values": BytesField(), "pair": PairField(), "number": IntField()}
    return write(tmp_path_factory.mktemp("custom") / "custom.beton", fields, Samples())


@pytest.fixture
def four_threads():
    import numba

    number, Compiler.num_threads = Compiler.num_threads, min(4, numba.config.NUMBA_NUM_THREADS)
    yield
    Compiler.num_threads = number


class Batch(NamedTuple):
    outputs: tuple[Any, ...]
    samples: np.ndarray


def batches(path, pipelines, *, os_cache=True, **arguments):
    """The batches of an epoch, with their samples."""
    usual = {"num_workers": 1, "order": "random", "seed": 0, "drop_last": False, "custom_fields": {"pair": PairField}}
    with Loader(path, 6, pipelines=pipelines, os_cache=os_cache, **{**usual, **arguments}) as loader:
        rows = iter(loader)
        return [Batch(outputs, rows.samples) for outputs in rows]


ONLY_VALUES = {"pair": None, "number": None}
REST = dict.fromkeys(["weight", "note", "info", "vector"])


@pytest.mark.parametrize("os_cache", [True, False])
@pytest.mark.parametrize("decoder", [Lengths, PlainLengths])
def test_a_decoder_written_for_ffcv_reads_the_bytes_of_its_samples(file, decoder, os_cache):
    pipeline = PipelineSpec("values", decoder=decoder(), transforms=[ToTensor()])
    for batch in batches(file, {"values": pipeline, **ONLY_VALUES}, os_cache=os_cache):
        lengths = batch.samples.astype(int) % 6
        assert isinstance(batch.outputs[0], torch.Tensor)
        assert batch.outputs[0].tolist() == [[count, count * (count - 1) // 2] for count in lengths]


@pytest.mark.usefixtures("four_threads")
def test_a_parallel_decoder_gives_the_same(file):
    if Compiler.num_threads == 1:
        pytest.skip("one core")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba finds too little to do
        result = batches(file, {"values": PipelineSpec("values", decoder=ParallelLengths()), **ONLY_VALUES})
    expected = batches(file, {"values": PipelineSpec("values", decoder=Lengths()), **ONLY_VALUES})
    for ours, others in zip(result, expected, strict=True):
        assert (ours.outputs[0] == others.outputs[0]).all()


def test_a_decoder_may_be_debugged_in_plain_python(file):
    Compiler.set_enabled(False)
    try:
        result = batches(file, {"values": PipelineSpec("values", decoder=Lengths()), **ONLY_VALUES})
    finally:
        Compiler.set_enabled(True)
    assert result[0].outputs[0][:, 0].tolist() == (result[0].samples % 6).tolist()


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_field_of_the_users_own_may_store_several_regions(file, os_cache):
    for batch in batches(file, {"values": None}, os_cache=os_cache):
        pairs = batch.outputs[0].numpy().view(np.float32)
        assert pairs[:, 0].tolist() == [[sample + 0.25] * 3 for sample in batch.samples.tolist()]
        assert pairs[:, 1].tolist() == [[sample + 0.5] * 3 for sample in batch.samples.tolist()]


def test_code_in_a_class_derived_from_the_librarys_decoder_runs(file):
    class Backwards(BytesDecoder):
        def generate_code(self):
            read = self.memory_read

            def code(indices, destination, metadata, storage_state):
                destination[:] = 0
                for row in range(len(indices)):
                    content = read(metadata[indices[row]]["ptr"], storage_state)
                    destination[row, : len(content)] = content[::-1]
                return destination

            return code

    for batch in batches(file, {"values": [Backwards(), ToTensor()], **ONLY_VALUES}):
        counts = [sample % 6 for sample in batch.samples.tolist()]
        assert batch.outputs[0].tolist() == [[*range(count)][::-1] + [0] * (5 - count) for count in counts]


def test_code_in_a_class_derived_from_an_image_decoder_gets_room_for_images_of_any_size(tmp_path):
    class Corner(RandomResizedCropRGBImageDecoder):
        def generate_code(self):
            read = self.memory_read

            def code(indices, destination, metadata, storage_state):
                images, room = destination
                for row in range(len(indices)):
                    place = metadata[indices[row]]
                    content = read(place["data_ptr"], storage_state)
                    room[row, : content.size] = content
                    whole = room[row, : content.size].reshape(np.uint32(place["height"]), np.uint32(place["width"]), 3)
                    images[row] = whole[: images.shape[1], : images.shape[2]]
                return images

            return code

    path = write_photos(tmp_path / "raw.beton", 20, write_mode="raw")
    index, _ = open_index(path)
    pipelines = {"image": [Corner((9, 8)), RandomHorizontalFlip(1.0), ToTensor()], "label": None, **REST}
    for batch in batches(path, pipelines, custom_fields={}):
        sizes = [(index.column("image")[side][batch.samples]).tolist() for side in ("height", "width")]
        for image, number, height, width in zip(batch.outputs[0], batch.samples.tolist(), *sizes, strict=True):
            assert np.array_equal(image, picture(number, height, width)[:9, :8][:, ::-1])


@pytest.mark.parametrize(
    ("decoder", "query"),
    [
        (IntDecoder(), AllocationQuery((1,), np.dtype("<i8"))),
        (BytesDecoder(), AllocationQuery((5,), np.dtype("u1"))),
        (NDArrayDecoder(), AllocationQuery((2, 3), np.dtype("float32"))),
        (SimpleRGBImageDecoder(), AllocationQuery((4, 5, 3), np.dtype("uint8"))),
    ],
)
def test_the_librarys_decoders_ask_for_ffcvs_memory_on_behalf_of_those_derived_from_them(decoder, query):
    decoder.accept_field(NDArrayField("<f4", (2, 3)))
    decoder.accept_globals(np.array([(4, 5)], [("height", "<u2"), ("width", "<u2")]), len)
    if hasattr(decoder, "accept_extent"):
        decoder.accept_extent(5)
    assert decoder.declare_state_and_memory(State(True, "cpu", (), np.dtype("u1")))[1] == query


def test_a_decoder_that_reads_the_region_of_a_number_gets_an_error_with_the_cause(file):
    class Wrong(Operation):
        def declare_state_and_memory(self, previous_state):
            return replace(previous_state, shape=(8,)), None

        def generate_code(self):
            raise NotImplementedError

        def decode(self, rows, gather):
            return gather(8)

    with pytest.raises(PipelineError, match=r"region.* 0"):
        batches(file, {"number": PipelineSpec("number", decoder=Wrong()), "values": None, "pair": None})


def test_a_decoder_that_needs_arguments_has_to_be_given(file):
    class Needy(PairField):
        @staticmethod
        def from_binary(_):
            return Needy()

        def get_decoder_class(self):
            class NeedyDecoder(Lengths):
                def __init__(self, argument):
                    self.argument = argument

            return NeedyDecoder

    with pytest.raises(PipelineError, match=r"field 'pair': .*argument"):
        batches(file, {}, custom_fields={"pair": Needy})


def test_operations_know_their_field_and_its_metadata(file):
    seen = []

    class Curious(Operation):
        def declare_state_and_memory(self, previous_state):
            seen.append((self.field, len(self.metadata)))
            return replace(previous_state, jit_mode=False), None

        def generate_code(self):
            return lambda batch, _: batch

    operation = Curious()
    batches(file, {"number": [operation], "values": None, "pair": None})
    assert isinstance(seen[0][0], IntField)
    assert seen[0][1] == 20
    assert operation.field is None  # the user's own stays as it was


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_number_that_points_to_no_region_gives_the_decoder_no_bytes(tmp_path, os_cache):
    path = write(tmp_path / "pairs.beton", {"pair": PairField()}, [(Samples()[number][1],) for number in range(20)])
    index, _ = open_index(path, {"pair": PairField})
    with path.open("r+b") as stored:
        stored.seek(index.header.metadata_offset + 7 * index.metadata.itemsize)
        stored.write(np.uint64(1 << 63).tobytes())
    with pytest.raises(ValueError, match=r"from shape \(0,\)"):  # the decoder expects 12
        batches(path, {}, os_cache=os_cache)
