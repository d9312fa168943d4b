"""Mixtures: several sources with their shares of each batch."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

from gpubeton import Loader, Mixture
from gpubeton.dataset import index_source, open_source
from gpubeton.errors import FieldMismatchError, OptionError, StateError
from gpubeton.fields import FloatField, IntField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import OrderOption, resources
from gpubeton.pipeline import DrawnParameters
from gpubeton.transforms import Cutout, RandomHorizontalFlip, ToTensor
from gpubeton.traversal_order import Balanced, QuasiRandom, Sequential
from tests.bytes.unmapped_source import counted, traffic  # noqa: F401  a fixture
from tests.loader.test_elastic import global_batches, run
from tests.loader.test_read_in_place import converted, photos, pipelines, write_tars  # noqa: F401  fixtures
from tests.loader.test_unmapped_files import write_pictures
from tests.small_files import write

PIPELINES = {
    "image": [RandomResizedCropRGBImageDecoder((16, 16)), RandomHorizontalFlip(), Cutout(3), ToTensor()],
    "note": None,
}
SIZES = (300, 200, 60)
WEIGHTS = (0.5, 0.3, 0.2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three files with about a hundred parts of half of 128 KiB together."""
    folder = tmp_path_factory.mktemp("mixture")
    starts = [sum(SIZES[:number]) for number in range(3)]
    return [write_pictures(folder / f"{n}.beton", starts[n], SIZES[n]) for n in range(3)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("gpubeton._plan.page_plan.MAX_REQUEST", 128 << 10)


def mixture_of(files, weights=WEIGHTS, **arguments):
    return Mixture(dict(zip(files, weights, strict=True)), **arguments)


def opened(source, batch_size=20, **arguments):
    usual = {"num_workers": 1, "seed": 3, "order": "window", "pipelines": PIPELINES, "drop_last": False}
    return Loader(source, batch_size, **{**usual, **arguments})


def plain(source, batch_size=20, **arguments):
    return opened(source, batch_size, pipelines={"image": None, "note": None}, **arguments)


def received(loader, count=None):
    batches = iter(loader)
    for _ in range(len(batches) if count is None else count):
        outputs = next(batches)
        yield batches.samples.tolist(), [np.asarray(output).tobytes() for output in outputs]


def order_of(loader, epoch):
    return np.concatenate([batch.samples for batch in loader.plan(epoch)]).astype(int)


@pytest.mark.parametrize("order", ["sequential", "random", "window"])
def test_each_source_comes_in_the_order_that_it_has_alone_and_goes_on_over_epochs(files, order):
    streams = {"order_kwargs": {"streams": 20, "width": 2}} if order == "window" else {}
    loader = plain(mixture_of(files, samples=400), order=order, **streams)
    samples = np.concatenate([order_of(loader, epoch) for epoch in range(3)])
    for number, file in enumerate(files):
        start, share = sum(SIZES[:number]), WEIGHTS[number]
        mine = samples[(samples >= start) & (samples < start + SIZES[number])] - start
        assert len(mine) == 3 * 400 * share
        alone = {"order_kwargs": {"streams": round(20 * share), "width": 2}} if streams else {}
        with plain(file, order=order, **alone) as single:
            passes = [order_of(single, number) for number in range(7)]
        assert mine.tolist() == np.concatenate(passes)[: len(mine)].tolist()


def test_a_sample_that_comes_again_in_an_epoch_is_augmented_in_another_way_and_boxes_of_it_follow(files):
    pipelines = {**PIPELINES, "label": None, "drawn": DrawnParameters("image")}
    mixture = mixture_of(files, (0.1, 0.1, 0.8), samples=400)
    with (
        opened(mixture, pipelines=pipelines, order="sequential") as loader,
        opened(files[0], order="sequential") as one,
    ):
        single, first = one.plan()[0], {}
        alone = dict(zip(single.samples.tolist(), single.images["image"].draws, strict=True))
        batches, seen = iter(loader), {}
        for number, (pixels, drawn) in enumerate(batches):
            plan = loader.plan(0)[number]
            assert plan.samples.tolist() == batches.samples.tolist()
            assert drawn["crop"].tolist() == plan.images["image"].draws[:, :4].tolist()
            for sample, image, draws in zip(batches.samples.tolist(), pixels, plan.images["image"].draws, strict=True):
                first.setdefault(sample, draws)
                seen.setdefault(sample, []).append(image.numpy().tobytes())
    repeated = [images for images in seen.values() if len(images) > 1]
    assert len(repeated) == 60
    assert all(len(set(images)) == len(images) for images in repeated)
    # For the first time, as in a loader without a mixture.
    assert all((first[sample] == draws).all() for sample, draws in alone.items())


def test_the_number_of_the_source_is_an_output_and_statistics_count_each(files):
    with opened(mixture_of(files, samples=200, field="source"), 40) as loader:
        for _, labels, source in loader:
            counts = np.bincount(source.numpy()[:, 0], minlength=3).tolist()
            assert counts == [20, 12, 8]
            assert (
                np.searchsorted([0, 300, 500], labels.numpy()[:, 0], side="right") - 1 == source.numpy()[:, 0]
            ).all()
        stats = loader.stats()
        assert stats.source_images == (100, 60, 40)
        assert stats.to_metrics()["loader/source_1_images"] == 60
        for _ in loader:
            pass
        assert loader.stats(total=True).source_images == (200, 120, 80)
        assert json.loads(json.dumps(stats.to_dict()))["source_images"] == [100, 60, 40]
        loader.explain()
        assert repr(loader.fname) == f"<Mixture of {files[0]}: 0.5, {files[1]}: 0.3, {files[2]}: 0.2>"
    with pytest.raises(OptionError, match="field 'label' is in its sources"):
        opened(mixture_of(files, field="label"))


def test_the_shares_of_the_next_epoch_are_explained(files, capsys):
    with plain(mixture_of(files, samples=100, schedule={1: [1, 3, 0]})) as loader:
        for shares in (("50.0%", "30.0%", "20.0%"), ("25.0%", "75.0%", "0.0%")):
            loader.explain()
            listed = ", ".join(f"{file} {share}" for file, share in zip(files, shares, strict=True))
            assert f"\nmixture, shares of an epoch: {listed}\n" in capsys.readouterr().out
            loader.set_epoch(1)


def test_a_schedule_changes_weights_from_an_epoch_on(files):
    by_epoch = {1: [1, 1, 0], 3: {files[2]: 1, files[0]: 0, files[1]: 1}}
    expected = [(50, 30, 20), (50, 50, 0), (50, 50, 0), (0, 50, 50), (0, 50, 50)]
    for schedule in (by_epoch, lambda epoch: [WEIGHTS, (1, 1, 0), (1, 1, 0), (0, 1, 1), (0, 1, 1)][epoch]):
        with plain(mixture_of(files, samples=100, schedule=schedule)) as loader:
            assert [loader.plan(epoch)[0].samples.size for epoch in range(5)] == [20] * 5
            for counts in expected:
                for _ in loader:
                    pass
                assert loader.stats().source_images == counts


def test_epochs_may_end_before_a_source_is_used_up(files):
    with plain(mixture_of(files, repeat=False), 30) as loader:
        for epoch in range(2):
            samples = order_of(loader, epoch)
            assert len(samples) == len(set(samples)) == 300
            assert sorted(samples)[-60:] == list(range(500, 560))
        assert len(loader) == 10


@pytest.mark.parametrize("order", ["sequential", "random", "window"])
def test_a_loader_goes_on_anywhere_with_the_same_batches(files, order):
    mixture = mixture_of(files, (0.4, 0.1, 0.5), samples=130)
    with opened(mixture, order=order) as loader:
        whole = [list(received(loader)) for _ in range(3)]
    for epoch, count in ((0, 3), (1, 5), (2, 0)):
        with opened(mixture, order=order) as loader, opened(mixture, order=order, seed=None) as other:
            loader.set_epoch(epoch)
            batches = iter(loader)
            for _ in range(count):
                next(batches)
            other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            assert list(received(other)) == whole[epoch][count:]


@pytest.mark.parametrize("order", ["random", "window"])
def test_any_number_of_ranks_has_the_same_global_batches_and_goes_on_with_an_epoch(files, order):
    mixture = mixture_of(files, (0.3, 0.1, 0.6), samples=240)
    arguments = {"order": order, "pipelines": PIPELINES}
    whole = list(global_batches(run(mixture, 1, 24, **arguments)[0]))
    assert len(whole) == 10
    first, state = run(mixture, 8, 3, None, 4, **arguments)
    for world, batch_size in ((4, 6), (3, 8), (1, 24)):
        rest, _ = run(mixture, world, batch_size, state, **arguments)
        for (samples, images), (expected, theirs) in zip(global_batches([*first, *rest]), whole, strict=True):
            assert sorted(samples) == sorted(expected)
            mine, others = (sorted(image.numpy().tobytes() for image in part) for part in (images, theirs))
            assert mine == others
    # Of another size: the rest, however often the ranks change. The next epoch has shares in the new batches.
    expected = sorted(sample for samples, _ in whole for sample in samples)
    second, state = run(mixture, 2, 10, state, 3, **arguments)
    third, state = run(mixture, 3, 7, state, 2, **arguments)
    last, _ = run(mixture, 1, 21, state, **arguments)
    parts = [
        sample for part in (first, second, third, last) for samples, _ in global_batches(part) for sample in samples
    ]
    assert sorted(parts) == expected


def test_a_state_names_its_mixture_and_another_is_refused(files):
    with plain(mixture_of(files, samples=100)) as loader:
        list(received(loader))
        list(received(loader, 2))
        state = loader.state_dict()
    assert state["mixture"] == "weights 0.5, 0.3, 0.2 of 100 samples an epoch, repeated, after 50, 30, 20"
    for changes in (
        {"weights": (0.5, 0.2, 0.3)},
        {"samples": 110},
        {"repeat": False},
        {"schedule": lambda epoch: (1, 1, 2 - epoch)},
        {"by": "epoch"},
    ):
        message = r"the mixture is 'weights .* in the state"
        with plain(mixture_of(files, **{"samples": 100, **changes})) as other, pytest.raises(StateError, match=message):
            other.load_state_dict(state)
    with plain(files) as other, pytest.raises(StateError, match=r"the mixture is '' here and 'weights 0.5"):
        other.load_state_dict(state)
    # Later weights may change.
    with plain(mixture_of(files, samples=100, schedule={5: [1, 1, 1]})) as other:
        other.load_state_dict(state)
        assert other.next_epoch == 1


def test_a_window_of_a_mixture_makes_no_more_requests_than_its_sources_alone(files, traffic, monkeypatch):  # noqa: F811
    monkeypatch.setattr(resources, "memory_for_pages", lambda: None)
    usual = {"order_kwargs": {"streams": 4, "width": 2}}
    # Each source once, and the last one three times.
    mixture = Mixture(
        {counted(file): size * (1 + 2 * (size == 60)) for file, size in zip(files, SIZES, strict=True)}, samples=680
    )
    requests = []
    for source, passes in ((mixture, 1), *((counted(file), 1 + 2 * ("2.beton" in file)) for file in files)):
        with warnings.catch_warnings(), opened(source, **usual) as loader:
            warnings.simplefilter("ignore")
            for _ in range(passes):
                batches = list(received(loader))
            requests.append(loader.stats(total=True).requests)
            if source is mixture:
                with opened(mixture_of(files, (*SIZES[:2], 180), samples=680), **usual) as local:
                    assert batches == list(received(local))
    assert requests[0] <= sum(requests[1:])


def test_other_orders_and_those_of_users_are_refused_and_a_class_of_the_library_may_be_chosen_later(files):
    class Mine(Sequential):
        pass

    for order in (QuasiRandom, "quasi_random", Mine):
        with pytest.raises(OptionError, match=r"a mixture: order is .*expected 'sequential'"):
            plain(mixture_of(files), order=order)
    with plain(mixture_of(files, samples=100)) as loader:
        assert "Mixed" in repr(loader)
        loader.order = OrderOption.SEQUENTIAL
        assert sorted(order_of(loader, 0))[:3] == [0, 1, 2]
        with pytest.raises(OptionError, match="the mixture puts the sources together"):
            loader.traversal_order = Sequential(loader)
        loader.traversal_order.sampler = torch.utils.data.SequentialSampler(range(3))
        with pytest.raises(OptionError, match="expected none"):
            loader.plan(1)
    with plain(mixture_of(files, samples=100), order=Balanced, order_kwargs={"field": "label"}) as loader:
        assert len(order_of(loader, 0)) == 100


def test_indices_and_conditions_choose_samples_of_each_source(files):
    with plain(mixture_of(files, samples=100), indices=range(0, 560, 2)) as loader:
        assert set(order_of(loader, 0) % 2) == {0}
        loader.indices = range(0, 560, 5)
        assert set(order_of(loader, 0) % 5) == {0}
        found = loader.filter("label", lambda label: label % 3 == 0)
        assert set(order_of(found, 0) % 15) == {0}
        assert [np.sum((order_of(found, 0) >= start) & (order_of(found, 0) < stop))
                for start, stop in ((0, 300), (300, 500), (500, 560))] == [50, 30, 20]  # fmt: skip
    with pytest.raises(OptionError, match=r"1.beton has 0 samples among the loader's indices"):
        plain(mixture_of(files), indices=range(100))


def test_sources_of_all_kinds_go_together(photos, converted, tmp_path):  # noqa: F811
    tars = write_tars(photos, tmp_path)
    index_source(open_source(photos), tmp_path / "photos.index", num_workers=1)
    allowed = {"containers": [photos.parent], "pipelines": pipelines(), "num_workers": 1, "seed": 3}
    sources = [str(converted), str(tmp_path / "photos.index"), tars, str(photos), (str(converted), str(converted))]
    mixture = Mixture(list(zip(sources, (1, 1, 1, 1, 2), strict=True)))
    for order in ("sequential", "window"):
        for os_cache in (True, False):
            with Loader(mixture, 30, order=order, os_cache=os_cache, **allowed) as loader:
                rows = {}
                batches = iter(loader)
                for images, labels in batches:
                    rows |= dict(zip(batches.samples.tolist(), zip(images, labels, strict=True), strict=True))
            assert len(rows) == 180
    # The samples of all sources are those of the file: without random crops, they have the same pixels.
    still = {"image": [RandomResizedCropRGBImageDecoder((24, 20), scale=(1, 1), ratio=(1, 1)), ToTensor()]}
    with Loader(mixture, 30, **{**allowed, "pipelines": still}, order="sequential") as loader:
        batches = iter(loader)
        rows = [
            (sample, label)
            for _, labels in batches
            for sample, label in zip(batches.samples.tolist(), labels, strict=True)
        ]
        assert all(label == sample % 30 // 10 for sample, label in rows)


def test_fields_that_differ_are_named_with_both_sources_and_types(files, tmp_path):
    other = write(tmp_path / "other.beton", {"label": FloatField()}, [(1.0,)])
    same = write(tmp_path / "same.beton", {"label": IntField()}, [(1,)])
    with pytest.raises(FieldMismatchError, match=r"other.beton and .*same.beton.*'label' is .*FLOAT.* and .*INT"):
        Loader(Mixture({other: 1, same: 1}), 1)
    with pytest.raises(FieldMismatchError, match=r"field 'image' is in .*0.beton, but not in .*same.beton"):
        Loader(Mixture({files[0]: 1, same: 1}), 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixture({}), "no sources"),
        (lambda: Mixture({"a": "much"}), "expected a finite number of at least 0 for each of a"),
        (lambda: Mixture({"a": 1}, schedule={3: [1, 2]}), "expected a finite number"),
        (lambda: Mixture({"a": 1, "b": 1}, schedule={3: {"a": 1}}), "at least 0 for each of a, b"),
        (lambda: Mixture({"a": -1}), "one of them above 0"),
        (lambda: Mixture({"a": 0}), "one of them above 0"),
        (lambda: Mixture({"a": 1, "b": float("inf")}), "one of them above 0"),
        (lambda: Mixture({"a": 1}, samples=0), "samples is 0"),
        (lambda: Mixture({"a": 1}, by="rank"), "by"),
        (lambda: Mixture({"a": 1}, schedule=lambda _: 5).weights(3), "expected a finite number"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(make, message):
    with pytest.raises(OptionError, match=message):
        make()
