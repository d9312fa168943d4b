"""What scripts written for FFCV do with a loader besides iterating over it."""

from __future__ import annotations

from itertools import chain
from queue import Queue
from types import ModuleType

import numpy as np
import pytest
import torch

from gpubeton.errors import LoaderClosedError, OptionError, PipelineError
from gpubeton.fields import JSONField
from gpubeton.fields.decoders import (
    BytesDecoder,
    CenterCropRGBImageDecoder,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
)
from gpubeton.loader import Loader, OrderOption
from gpubeton.loader.epoch_iterator import EpochIterator
from gpubeton.loader.loader import ORDER_MAP
from gpubeton.pipeline import DrawnParameters, PipelineSpec
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Operation
from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage, View
from gpubeton.traversal_order import QuasiRandom, Sequential, TraversalOrder
from gpubeton.writer import DatasetWriter
from tests.loader.pipelines import ONLY_IMAGE, ONLY_LABEL, augmented, labels, make, samples


def in_a_row(loader):
    return list(chain.from_iterable(samples(loader)))


class Listed(TraversalOrder):
    """Reads a list again for each epoch."""

    def __init__(self, loader, listed):
        super().__init__(loader)
        self.listed = listed

    def sample_order(self, epoch):
        return np.array(list(self.listed))


@pytest.mark.parametrize("order", [OrderOption.SEQUENTIAL, OrderOption.RANDOM, "quasi_random"])
def test_other_indices_count_from_the_next_epoch_on(photos, order):
    loader = make(photos, order=order)
    under_way = iter(loader)
    loader.indices = [3, 1, 4, 15, 9]
    assert (len(loader), len(under_way), loader.indices.dtype) == (1, 7, np.uint64)
    other = make(photos, order=order, indices=[3, 1, 4, 15, 9])
    other.set_epoch(1)
    assert samples(loader) == samples(other)
    assert sum(len(batch) for (batch,) in under_way) == 50


@pytest.mark.parametrize("order", [OrderOption.SEQUENTIAL, OrderOption.RANDOM, "quasi_random"])
def test_indices_may_be_given_to_the_order_as_well_as_ffcvs_users_have_to(photos, order):
    loader = make(photos, order=order)
    assert len(loader) == 7
    for subset in ([5, 2, 8], np.arange(20, 40)):
        loader.indices = subset
        loader.traversal_order.indices = subset
        assert sorted(in_a_row(loader)) == sorted(map(int, subset))
    assert len(loader) == 3
    loader.traversal_order.indices = np.array([7])
    assert (len(loader), samples(loader)) == (1, [[7]])


def test_indices_that_are_none_are_refused_and_change_nothing(photos):
    loader = make(photos)
    with pytest.raises(OptionError, match=r"indices holds 50"):
        loader.indices = [50]
    assert (len(loader.indices), len(loader)) == (50, 7)


def test_an_order_that_cannot_be_made_of_other_indices_leaves_the_loader_as_it_was(photos):
    weights = np.zeros(50)
    weights[:10] = 1
    loader = make(photos, order="random", indices=range(20))

    class Weighted(TraversalOrder):
        def __init__(self, loader):
            super().__init__(loader)
            if not weights[np.asarray(self.indices, int)].any():
                raise OptionError("nothing to draw")

        def sample_order(self, epoch):
            return self.indices

    loader.order = Weighted
    with pytest.raises(OptionError, match=r"nothing to draw"):
        loader.indices = range(30, 40)
    assert samples(loader) == samples(make(photos, indices=range(20)))


@pytest.mark.parametrize("attribute", ["order", "traversal_order"])
@pytest.mark.parametrize("order", [OrderOption.RANDOM, "random", QuasiRandom])
def test_another_order_counts_from_the_next_epoch_on(photos, attribute, order):
    loader = make(photos)
    first = iter(loader)
    setattr(loader, attribute, order)
    other = make(photos, order=order)
    other.set_epoch(1)
    assert samples(loader) == samples(other)
    assert next(first)[0].tolist() == next(iter(make(photos)))[0].tolist()
    assert loader.filter("label", lambda label: label < 100).order == order
    with pytest.raises(OptionError, match=r"order is 'shuffled'"):
        setattr(loader, attribute, "shuffled")


def test_an_order_may_be_an_object_of_a_users_own(photos):
    loader = make(photos)
    loader.traversal_order = Listed(loader, [7, 3, 3])
    loader.first_traversal_order = loader.next_traversal_order()  # without which FFCV's len would not follow
    assert (len(loader), samples(loader)) == (1, [[7, 3, 3]])
    assert len(loader) == 1
    loader.traversal_order.listed.append(1)  # deeper than an attribute
    assert samples(loader) == [[7, 3, 3, 1]]
    assert "Listed" in repr(loader)
    mine, loader.indices = loader.traversal_order, [2, 6]
    assert loader.traversal_order is mine  # which knows its samples
    assert samples(loader) == [[7, 3, 3, 1]]


@pytest.mark.parametrize("key", [OrderOption.RANDOM, "backwards"])
def test_a_class_in_the_map_of_orders_counts_for_loaders_made_after_it(photos, key, monkeypatch):
    class Backwards(TraversalOrder):
        def sample_order(self, epoch):
            return self.indices[::-1]

    monkeypatch.setitem(ORDER_MAP, key, Backwards)
    assert in_a_row(make(photos, order=key, indices=[4, 7, 9])) == [9, 7, 4]


def test_an_order_is_put_back_with_the_samples_that_it_had(photos):
    loader, other = make(photos, order="random"), make(photos, order="random")
    for _ in range(2):  # as fastxtend shows a batch
        order, indices = loader.traversal_order, loader.indices
        loader.indices = [2, 6]
        loader.traversal_order = Sequential(loader)
        assert samples(loader) == [[2, 6]]
        loader.next_epoch -= 1
        loader.indices = indices
        assert in_a_row(loader) == list(range(50))
        loader.next_epoch -= 1
        loader.traversal_order = order
        assert samples(loader) == samples(other)
    mine = Sequential(loader)
    mine.indices = np.array([4])
    loader.traversal_order = mine
    assert samples(loader) == [[4]]


def test_the_order_of_the_next_epoch_can_be_asked_for(photos):
    loader = make(photos, order="random", drop_last=True)
    assert loader.next_traversal_order().tolist() == loader.first_traversal_order.tolist()
    expected = make(photos, order="random").next_traversal_order()
    loader.next_traversal_order()[:] = loader.first_traversal_order[:] = 0  # copies
    assert in_a_row(loader) == expected[:48].tolist()
    assert loader.next_traversal_order().tolist() != expected.tolist()
    assert loader.first_traversal_order.shape == (50,)


def test_the_arguments_make_another_loader(photos):
    loader = make(photos, order="random")
    copy = Loader(**{**loader._args, "batch_size": 5})
    assert (copy.batch_size, copy.seed, copy.pipelines, copy._args.keys()) == (5, 3, ONLY_LABEL, loader._args.keys())
    assert in_a_row(copy) == in_a_row(loader)


def test_a_list_in_a_spec_is_its_operations(photos):
    pipelines = {**ONLY_LABEL, "again": PipelineSpec("label", [IntDecoder(), ToTensor(), View(torch.float64)])}
    for label, again in make(photos, pipelines=pipelines):
        assert torch.equal(again[:, 0], label.view(torch.float64))


def test_settings_are_changed_in_the_specs_of_pipelines(photos):
    decoder = CenterCropRGBImageDecoder((24, 24), 1.0)
    second = PipelineSpec("image", RandomResizedCropRGBImageDecoder((8, 8)), [ToTensor()])
    pipelines = {**ONLY_IMAGE, "image": [decoder, ToTensor()], "second": second, "drawn": DrawnParameters("second")}
    loader = make(photos, pipelines={**pipelines, "label": [ToTensor()]})
    specs = loader.pipeline_specs
    assert list(specs) == ["image", "label", "second"]
    assert (specs["image"].source, specs["image"].decoder, specs["second"]) == ("image", decoder, second)
    assert [type(operation) for operation in specs["image"].transforms] == [ToTensor]
    assert (type(specs["label"].decoder), len(specs["label"].transforms)) == (IntDecoder, 1)
    specs["image"].decoder.output_size = (16, 12)
    loader.generate_code()
    assert next(iter(loader))[0].shape == (8, 16, 12, 3)
    assert loader.field_name_to_f_ix["label"] == 1


def test_generate_code_reports_immediately_that_an_operation_can_no_longer_be_planned(photos):
    flip = RandomHorizontalFlip()
    loader = make(photos, pipelines={**ONLY_IMAGE, "image": [CenterCropRGBImageDecoder((8, 8), 1), flip, ToTensor()]})
    flip.flip_prob = 7
    with pytest.raises(OptionError, match=r"flip_prob is 7"):
        loader.generate_code()
    with pytest.raises(OptionError, match=r"flip_prob is 7"):
        make(photos, pipelines=loader.pipelines)


SETTINGS = ModuleType("settings")
SETTINGS.inner = ModuleType("inner")


class ScaledFromAfar(Operation):
    def declare_state_and_memory(self, previous_state):
        return previous_state, None

    def generate_code(self):
        def scaled(batch, memory):
            return batch * SETTINGS.inner.scale

        return scaled


def test_recompile_sees_changes_in_nested_objects_too(photos):
    pipelines = {**ONLY_LABEL, "label": [IntDecoder(), ScaledFromAfar(), ToTensor()]}
    SETTINGS.inner.scale = 1
    loader = make(photos, pipelines=pipelines, recompile=True)
    first = next(iter(loader))[0]
    SETTINGS.inner.scale = 10
    assert torch.equal(next(iter(loader))[0], 10 * first)


class Numbered(EpochIterator):
    """Hands out the samples of each batch, as FFCV's users do."""

    def __init__(self, loader, order):
        self.numbers = Queue()
        super().__init__(loader, order)

    def run_pipeline(self, b_ix, batch_indices, batch_slot, cuda_event):
        self.numbers.put((b_ix, batch_indices))
        return super().run_pipeline(b_ix, batch_indices, batch_slot, cuda_event)


class NumberedLoader(Loader):
    def __init__(self, *args, order=OrderOption.SEQUENTIAL, **kwargs):
        self.made_by = "a user"
        super().__init__(*args, order=order, **kwargs)
        self.order = order

    def __iter__(self):
        Compiler.set_num_threads(self.num_workers)
        order = self.next_traversal_order()[: len(self) * self.batch_size]
        self.next_epoch += 1
        if self.code is None or self.recompile:
            self.generate_code()
        return self.numbered(Numbered(self, order))

    def numbered(self, batches):
        for batch in batches:
            yield (*batch, *batches.numbers.get_nowait())


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_derived_loader_iterates_as_ffcvs_do(photos, drop_last):
    arguments = {"num_workers": 1, "order": "random", "seed": 3, "drop_last": drop_last}
    pipelines = {**ONLY_IMAGE, "image": augmented()}
    plain = Loader(photos, 8, pipelines=pipelines, **arguments)
    derived = NumberedLoader(photos, 8, pipelines=pipelines, **arguments)
    for _ in range(2):
        batches, rows = iter(plain), list(derived)
        assert [number for _, number, _ in rows] == list(range(6 if drop_last else 7))
        for expected, (images, _, ids) in zip(batches, rows, strict=True):
            assert torch.equal(images, expected[0])
            assert ids.tolist() == batches.samples.tolist()
    assert (derived.next_epoch, derived.made_by) == (2, "a user")


def test_an_iterator_of_other_samples_ends_with_the_loader(photos):
    loader = make(photos)
    batches = EpochIterator(loader, [4, 9])
    batches.close()
    batches.close()
    assert batches.closed
    assert len(list(EpochIterator(loader, range(9)))) == 2
    assert len(list(EpochIterator(make(photos, drop_last=True), range(9)))) == 2
    assert loader.next_epoch == 0
    with pytest.raises(OptionError, match=r"the order holds 99"):
        EpochIterator(loader, [99])
    loader.close()
    with pytest.raises(LoaderClosedError):
        EpochIterator(loader, [4, 9])


def test_an_iterator_of_chosen_samples_draws_as_the_newest_epoch_and_before_all_as_the_first(photos):
    loader = make(photos, pipelines={**ONLY_IMAGE, "image": augmented()})
    ((before,),) = EpochIterator(loader, range(8))
    first, _ = next(iter(loader))[0], next(iter(loader))
    ((after,),) = EpochIterator(loader, range(8))
    assert torch.equal(before, first)
    loader.set_epoch(1)
    assert torch.equal(after, next(iter(loader))[0])
    assert not torch.equal(before, after)


class OnDevice(Loader):
    """Has attributes under names that FFCV's loader leaves free."""

    def __init__(self, *args, **kwargs):
        self.of_pipelines = []
        super().__init__(*args, **kwargs)
        self.device = "cpu"
        self.os_cache, self.decoder = 3, "mine"

    @property
    def device(self):
        return self._device

    @device.setter
    def device(self, device):
        self._device = device
        self.of_pipelines += self.pipeline_specs


def test_a_derived_loader_may_have_an_attribute_device(photos):
    loader = OnDevice(photos, 8, num_workers=1, seed=3, drop_last=False, pipelines=ONLY_LABEL)
    assert (loader.device, loader.os_cache, loader.decoder, loader.of_pipelines) == ("cpu", 3, "mine", ["label"])
    assert labels(loader) == labels(make(photos))
    chosen = loader.filter("label", lambda label: label < 3)
    assert (chosen.device, chosen.os_cache, chosen.decoder) == ("auto", True, "auto")
    with pytest.raises(OptionError, match=r"seed of a loader"):
        loader.seed = 4


class WithProperties(Loader):
    @property
    def classes(self):
        return self.reader.num_classes


def test_an_attribute_that_a_property_does_not_find_is_named(photos):
    loader = WithProperties(photos, 8, num_workers=1, pipelines=ONLY_LABEL)
    with pytest.raises(AttributeError, match=r"'Reader' .*'num_classes'"):
        _ = loader.classes
    loader.graph = "mine"
    assert (loader.graph, hasattr(loader, "memory_manager")) == ("mine", False)


def test_a_misspelled_attribute_is_refused_and_others_are_free(photos):
    loader = make(photos)
    for name, meant in (("batchsize", "batch_size"), ("num_worker", "num_workers"), ("pipeline", "pipelines")):
        with pytest.raises(AttributeError, match=f"{name!r}.* {meant!r}"):
            setattr(loader, name, 3)
        assert not hasattr(loader, name)
    loader.num_classes, loader._prepared = 10, True
    assert (loader.num_classes, loader._prepared) == (10, True)
    derived = OnDevice(photos, 8, num_workers=1, pipelines=ONLY_LABEL)
    derived.devices = ["mine"]
    assert derived.devices == ["mine"]


class TwiceTheBatch(Loader):
    """Uses a loader's names before there is a loader."""

    def __init__(self, path, batch_size, **kwargs):
        self.batch_size = batch_size
        self.batch_size *= 2
        super().__init__(path, self.batch_size + 1, **kwargs)


def test_a_derived_loader_may_use_any_name_before_the_loader_is_made(photos):
    loader = TwiceTheBatch(photos, 10, num_workers=1, drop_last=False, pipelines=ONLY_LABEL)
    assert (loader.batch_size, [len(batch) for batch in labels(loader)]) == (21, [21, 21, 8])
    loader.batch_size = 25
    assert (loader.batch_size, len(loader)) == (25, 2)


class Keeping(Loader):
    """Keeps its arguments under their names, and a device, before there is a loader."""

    def __init__(self, path, **arguments):
        self.device = "mine"
        for name, value in arguments.items():
            setattr(self, name, value)
        super().__init__(path, num_workers=1, **arguments)


def test_a_derived_loader_may_keep_arguments_that_the_loader_checks_later(photos):
    arguments = {"indices": [3, 1], "order": "random", "pipelines": ONLY_LABEL, "on_error": "skip", "seed": 3}
    loader = Keeping(photos, batch_size=2, recompile=True, **arguments)
    assert (loader.indices.dtype, loader.pipelines, loader.on_error) == (np.uint64, ONLY_LABEL, "skip")
    assert loader.device == "mine"
    assert labels(loader) == labels(make(photos, batch_size=2, **arguments))


def test_a_loader_is_closed_at_the_end_of_a_with_block(photos):
    with make(photos) as loader:
        next(iter(loader))
    with pytest.raises(LoaderClosedError):
        iter(loader)


def test_a_missing_attribute_of_ffcvs_machinery_names_its_replacement(photos):
    loader = make(photos)
    with pytest.raises(AttributeError, match=r"'memory_manager'.* os_cache"):
        _ = loader.memory_manager
    with pytest.raises(AttributeError, match=r"no attribute 'memory'$"):
        _ = loader.memory
    assert not hasattr(loader, "graph")
    assert not hasattr(loader, "dataset")
    with pytest.raises(AttributeError, match=r"'dataset'.* DataLoaderAdapter"):
        _ = loader.dataset
    with pytest.raises(TypeError, match="DataLoaderAdapter"):
        next(iter(torch.utils.data.DataLoader(loader)))
    with pytest.raises(AttributeError, match=r"'Numbered' .*'output_queue'.* run_pipeline"):
        Numbered(loader, [1]).output_queue.get()


def test_a_label_can_be_viewed_flat(photos):
    loader = make(photos, pipelines={**ONLY_LABEL, "label": [IntDecoder(), ToTensor(), View(-1)]})
    assert labels(loader) == labels(make(photos))
    with pytest.raises(PipelineError, match=r"View\(-1\): .*\(3, 8, 8\)"):
        make(photos, pipelines={"image": [CenterCropRGBImageDecoder((8, 8), 1), ToTensor(), ToTorchImage(), View(-1)]})
    with pytest.raises(PipelineError, match=r"View.* torch"):
        make(photos, pipelines={**ONLY_LABEL, "label": [IntDecoder(), View(-1)]})


def test_json_is_decoded_by_ffcvs_decoder_of_bytes(tmp_path):
    facts = [{"legs": number, "name": "x" * number} for number in range(4)]
    writer = DatasetWriter(tmp_path / "facts.beton", {"fact": JSONField()}, num_workers=1, progress=False)
    writer.from_indexed_dataset([(fact,) for fact in facts])
    loader = Loader(tmp_path / "facts.beton", 4, num_workers=1, pipelines={"fact": [BytesDecoder()]})
    ((batch,),) = loader
    assert isinstance(batch, np.ndarray)
    assert JSONField.unpack(batch) == facts
    assert JSONField.unpack(batch[2]) == facts[2]
    assert type(loader.pipeline_specs["fact"].decoder) is BytesDecoder
    ((tensor,),) = Loader(tmp_path / "facts.beton", 4, num_workers=1, pipelines={"fact": [ToTensor()]})
    assert JSONField.unpack(tensor) == facts
