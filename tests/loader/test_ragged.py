from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.errors import FieldArgumentsError, PipelineError
from gpubeton.fields import BytesField, IntField, JSONField, NDArrayField, RaggedField, RGBImageField
from gpubeton.fields.decoders import RaggedDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State
from gpubeton.reader import Reader
from gpubeton.transforms import Convert, Squeeze, ToTensor
from tests.small_files import picture, write

DOUBLE = torch.float64


def boxes_of(number):
    rng = np.random.default_rng(number)
    return rng.uniform(0, 40, (number % 4, 4)).astype(np.float32)


def tokens_of(number):
    return np.arange(number, number + number % 3, dtype=">i2")


def detection(number):
    boxes = boxes_of(number)
    raw = np.frombuffer(boxes.tobytes(), np.uint8)
    return picture(number, 40, 50), boxes, raw, tokens_of(number), {"number": number}, number, np.zeros(2)


FIELDS = {
    "image": RGBImageField(write_mode="jpg"),
    "boxes": RaggedField("<f4", (-1, 4)),
    "raw": BytesField(),
    "tokens": RaggedField(">i2"),
    "info": JSONField(),
    "label": IntField(),
    "pair": NDArrayField("f8", (2,)),
}


@pytest.fixture(scope="module")
def detections(tmp_path_factory):
    path = tmp_path_factory.mktemp("ragged") / "detections.beton"
    return write(path, FIELDS, [detection(number) for number in range(30)])


def make(path, pipelines, **arguments):
    pipelines = {**dict.fromkeys(FIELDS), **pipelines}
    return Loader(path, **{"batch_size": 7, "num_workers": 1, "drop_last": False, "pipelines": pipelines, **arguments})


def rows_of(loader):
    """The arrays of each sample of the next epoch."""
    batches, results = iter(loader), {}
    for (ragged,) in batches:
        results.update(zip(batches.samples.tolist(), ragged, strict=True))
    return results


def same(result, expected):
    arrays = {number: np.asarray(array) for number, array in result.items()}
    return all(
        np.array_equal(arrays[number], expected(number)) and arrays[number].shape == expected(number).shape
        for number in arrays
    )


@pytest.mark.parametrize("os_cache", [True, False])
@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("boxes", ()),
        ("boxes", [RaggedDecoder(), ToTensor()]),
        ("raw", [RaggedDecoder("<f4", (-1, 4)), ToTensor()]),
        ("raw", [RaggedDecoder("<f4", (-1, 4))]),
    ],
)
def test_every_sample_gets_the_array_that_was_written(detections, name, pipeline, os_cache):
    result = rows_of(make(detections, {name: pipeline}, os_cache=os_cache, order="random", seed=1))
    assert sorted(result) == list(range(30))
    assert same(result, boxes_of)


def test_a_batch_is_values_and_offsets_without_padding_and_one_of_empty_arrays_keeps_their_shape(detections):
    batch = next(iter(make(detections, {"boxes": ()})))[0]
    lengths = [number % 4 for number in range(7)]
    assert batch.values.shape == (sum(lengths), 4)
    assert batch.offsets.tolist() == np.cumsum([0, *lengths]).tolist()
    assert (batch.values.dtype, batch.offsets.dtype) == (torch.float32, torch.int64)
    ragged = next(iter(make(detections, {"boxes": ()}, indices=[0, 4, 8])))[0]
    assert (ragged.values.shape, ragged.offsets.tolist()) == ((0, 4), [0, 0, 0, 0])


def test_numbers_of_another_byte_order_come_in_the_machines(detections):
    loader = make(detections, {"tokens": [Convert(np.int64), ToTensor()]})
    assert same(rows_of(loader), lambda number: tokens_of(number).astype(np.int64))
    assert same(rows_of(make(detections, {"tokens": ()})), tokens_of)


def test_the_state_after_the_decoder_has_the_machines_byte_order_and_a_length_that_varies():
    decoder = RaggedDecoder(">i2", (-1, 3))
    decoder.accept_field(BytesField())
    decoder.accept_globals(np.zeros(2, BytesField.metadata_type), None)
    state, _ = decoder.declare_state_and_memory(State(True, "cpu", (), np.dtype("u1")))
    assert (state.shape, state.dtype, state.jit_mode) == ((-1, 3), np.dtype("=i2"), False)


def test_operations_that_need_one_shape_are_refused(detections):
    class Compiled(Operation):
        def declare_state_and_memory(self, previous_state):
            return replace(previous_state, jit_mode=True), None

        def generate_code(self):
            return lambda batch, _: batch

    with pytest.raises(PipelineError, match=r"'boxes': Squeeze .*Ragged"):
        make(detections, {"boxes": [ToTensor(), Squeeze()]})
    with pytest.raises(PipelineError, match=r"Compiled .*Ragged"):
        make(detections, {"boxes": [Compiled()]})


def test_two_outputs_may_go_on_from_one_ragged(detections):
    decoder, tensor = RaggedDecoder(), ToTensor()
    loader = make(
        detections, {"boxes": [decoder, tensor], "doubles": PipelineSpec(tensor, transforms=[Convert(DOUBLE)])}
    )
    for boxes, doubles in loader:
        assert (boxes.dtype, doubles.dtype) == (torch.float32, torch.float64)
        assert torch.equal(boxes.values.double(), doubles.values)


def test_text_comes_as_its_bytes_and_filter_is_given_each_samples_array(detections):
    result = rows_of(make(detections, {"info": PipelineSpec("info", RaggedDecoder())}))
    assert bytes(result[12]) == b'{"number": 12}\0'
    filtered = make(detections, {"boxes": ()}).filter("boxes", lambda boxes: len(boxes) == 3)
    assert filtered.indices.tolist() == list(range(3, 30, 4))


def test_the_file_stores_type_and_shape_and_ffcv_finds_a_field_of_bytes(detections):
    reader = Reader(detections)
    field = reader.handlers["boxes"]
    assert (type(field), field.dtype, field.shape) == (RaggedField, np.dtype("<f4"), (-1, 4))
    assert type(reader.handlers["raw"]) is BytesField
    assert [descriptor.type_id for descriptor in reader.index.descriptors][1:4] == [3, 3, 3]
    assert type(Reader(detections, {"boxes": BytesField}).handlers["boxes"]) is BytesField
    assert reader.index.column("boxes")["size"].tolist() == [16 * (number % 4) for number in range(30)]


def test_an_operation_of_ones_own_gets_the_ragged(detections):
    class Half(Operation):
        def declare_state_and_memory(self, previous_state):
            return previous_state, None

        def generate_code(self):
            return lambda ragged, _: ragged.map(lambda values: values / 2)

    assert same(rows_of(make(detections, {"boxes": [Half(), ToTensor()]})), lambda number: boxes_of(number) / 2)


@pytest.mark.parametrize(
    ("pipelines", "error", "message"),
    [
        ({"pair": [RaggedDecoder()]}, PipelineError, "reads fields of bytes"),
        ({"raw": [RaggedDecoder("<f4", (-1, 3))]}, PipelineError, r"sample 1 .*16 bytes, .* 12"),
    ],
)
def test_a_type_or_shape_other_than_the_stored_is_refused_by_the_constructor(detections, pipelines, error, message):
    specs = {name: PipelineSpec(name, *pipeline) for name, pipeline in pipelines.items()}
    with pytest.raises(error, match=message):
        make(detections, specs)


@pytest.mark.parametrize("shape", [(), (4,), (3, 4), (-1, 0), (-1, -1)])
@pytest.mark.parametrize("kind", [RaggedDecoder, RaggedField])
def test_a_shape_that_varies_elsewhere_is_refused(kind, shape):
    with pytest.raises(FieldArgumentsError, match=r"-1"):
        kind("<f4", shape)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((2, 4)), "float64, .*float32"),
        (np.zeros((2, 3), "f4"), r"\(2, 3\), .*\(-1, 4\)"),
        (np.zeros(8, "f4"), r"of shape \(8,\), but"),
        (np.ones((), "f4"), r"of shape \(\), but"),
    ],
)
def test_an_array_of_another_kind_is_not_stored(value, message):
    from tests.fields.memory import encode

    with pytest.raises(ValueError, match=message):
        encode(RaggedField("<f4", (-1,) if value.ndim == 0 else (-1, 4)), value)


@pytest.mark.parametrize("value", [[], np.zeros(0), np.zeros((0, 4), "f4"), torch.zeros(0, 4)])
def test_nothing_may_have_any_shape_and_type(value):
    from tests.fields.memory import encode

    row, region = encode(RaggedField("<f4", (-1, 4)), value)
    assert (row["size"], region) == (0, b"")


def test_arrays_are_stored_in_c_order_also_from_other_orders():
    from tests.fields.memory import encode

    value = np.arange(12, dtype="<f4").reshape(4, 3).T
    for array in (value, value.astype(">f4"), torch.from_numpy(value)):
        assert encode(RaggedField("<f4", (-1, 4)), array)[1] == np.ascontiguousarray(value).tobytes()


def test_arguments_without_the_mark_are_refused():
    with pytest.raises(FieldArgumentsError, match=r"RaggedField.* BytesField"):
        RaggedField.from_binary(np.zeros(1024, np.uint8))
