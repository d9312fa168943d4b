"""Epochs of Lightning that some ranks or batches begin and others go on with."""

from __future__ import annotations

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from gpubeton.fields import IntField
from gpubeton.integrations.lightning import BetonDataModule
from tests.integrations.conftest import LABELS, Numbers
from tests.integrations.lightning_run import Diary, trainer
from tests.ranks import run_ranks
from tests.small_files import write

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
NUM_SAMPLES = 24


class Watched(Diary):
    """Notes each batch, and after which of them a validation came."""

    def __init__(self):
        super().__init__(None)
        self.batches, self.validated = [], []

    def training_step(self, batch, number):
        (labels,) = batch
        self.batches.append((self.current_epoch, labels.tolist()))
        return self.layer(labels[:, None].float()).mean()

    def on_validation_epoch_start(self):
        if not self.trainer.sanity_checking:
            self.validated.append(len(self.batches))

    def samples(self, epoch):
        return [sample for batch_epoch, samples in self.batches if batch_epoch == epoch for sample in samples]


class Scheduled(Watched):
    """Asks for the number of steps before Lightning has restored its loops."""

    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches > 0
        return super().configure_optimizers()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("elastic") / "numbers.beton", {"label": IntField()}, Numbers(NUM_SAMPLES))


def fit(path, folder, batch_size, ckpt_path=None, *, watched=Watched, **options):
    """Train for two epochs with a checkpoint after each step; return what the model saw."""
    training = {"fname": path, "order": "random", "seed": 3, "drop_last": False}
    module = BetonDataModule(training, val={"fname": path}, batch_size=batch_size, num_workers=1, pipelines=LABELS)
    saving = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    model = watched()
    fitting = trainer(folder, callbacks=[saving], limit_val_batches=1, **options)
    fitting.fit_loop.max_epochs = 2
    fitting.fit(model, module, ckpt_path=ckpt_path)
    assert fitting.current_epoch == 2
    return model


@pytest.fixture(scope="module")
def begun(path, tmp_path_factory):
    """What batches of 4 give, six in each of two epochs, and the folder of the checkpoints."""
    folder = tmp_path_factory.mktemp("begun")
    return fit(path, folder, 4), folder


@pytest.mark.parametrize("batch_size", [2, 4, 8])
@pytest.mark.parametrize("step", [1, 3, 5, 6, 7, 11])
@pytest.mark.parametrize("watched", [Watched, Scheduled])
def test_every_sample_of_an_epoch_comes_once_and_the_next_epoch_is_whole(
    path, tmp_path, begun, step, batch_size, watched
):
    whole, folder = begun
    rest = fit(path, tmp_path, batch_size, folder / f"step={step}.ckpt", watched=watched)
    epoch, done = divmod(step, 6)
    left = [whole.samples(0), whole.samples(1)]
    left[epoch] = left[epoch][4 * done :]
    assert rest.samples(epoch) == left[epoch]
    assert rest.samples(1) == left[1]
    # Validated at the end of each epoch that has batches, and not in between.
    ends = [
        len([batch_epoch for batch_epoch, _ in rest.batches if batch_epoch <= number]) for number in range(epoch, 2)
    ]
    assert rest.validated == ends


def test_an_epoch_may_be_resumed_with_other_batches_more_than_once(path, tmp_path, begun):
    whole, folder = begun
    smaller = fit(path, tmp_path / "smaller", 2, folder / "step=2.ckpt")
    larger = fit(path, tmp_path / "larger", 8, tmp_path / "smaller" / "step=6.ckpt")
    assert whole.samples(0)[:8] + smaller.samples(0)[:8] + larger.samples(0) == whole.samples(0)
    assert larger.samples(1) == whole.samples(1)
    assert larger.validated == [1, 4]


@pytest.mark.parametrize("interval", [0.5, 1])
def test_validations_in_the_middle_come_at_the_same_places(path, tmp_path, begun, interval):
    whole, folder = begun
    rest = fit(path, tmp_path, 2, folder / "step=2.ckpt", val_check_interval=interval)
    # Of batches of 2 an epoch has 12, of which four are done.
    assert rest.validated == ([2, 8, 14, 20] if interval == 0.5 else list(range(1, 21)))
    assert rest.samples(0) == whole.samples(0)[8:]


@pytest.mark.parametrize(
    ("limit", "batch_size", "steps"),
    [(4, 2, [3, 4]), (4, 8, [3, 3]), (2, 8, [1, 2]), (100, 2, [10, 12]), (0.5, 2, [4, 6])],
)
def test_a_limit_of_batches_holds_for_the_resumed_epoch_and_for_the_next(path, tmp_path, limit, batch_size, steps):
    first = fit(path, tmp_path / "begun", 4, limit_train_batches=limit)
    rest = fit(path, tmp_path / "rest", batch_size, tmp_path / "begun" / "step=1.ckpt", limit_train_batches=limit)
    assert [
        len([batch_epoch for batch_epoch, _ in rest.batches if batch_epoch == epoch]) for epoch in range(2)
    ] == steps
    assert not set(first.samples(0)[:4]) & set(rest.samples(0))
    assert rest.samples(1)[:4] == first.samples(1)[:4]
    assert rest.validated == [steps[0], sum(steps)]


def test_fewer_and_more_ranks_resume_after_all_were_killed(tmp_path):
    path = write(tmp_path / "numbers.beton", {"label": IntField()}, Numbers(48))
    run_ranks("tests.integrations.lightning_elastic_run", path, tmp_path, 3, processes=2, fails=True)
    run_ranks("tests.integrations.lightning_elastic_run", path, tmp_path, 9, processes=1, fails=True)
    run_ranks("tests.integrations.lightning_elastic_run", path, tmp_path, -1, processes=3)
    lines = [line.split(" ", 2) for diary in tmp_path.glob("?-?") for line in diary.read_text().splitlines()]
    for epoch in range(2):
        seen = [
            sample
            for _, line_epoch, samples in lines
            if int(line_epoch) == epoch
            for sample in map(int, samples[1:-1].split(","))
        ]
        assert sorted(seen) == list(range(48))
    assert max(int(step) for step, _, _ in lines) == 3 + 6 + 4 + 8 - 1
