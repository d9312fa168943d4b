"""Every wait of the GPU path is needed: with one of them taken away, a run goes wrong.

Each scenario makes one queue slow, and looks for wrong pixels, sentinels that tripped although nothing was skipped,
misuse that the simulator has seen, and work that is still under way where none may be. With all waits there is nothing
of it. The hardware decoder writes when it is called (as on Hopper), or in the stream's order.
"""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from gpubeton.cpu.worker import Worker
from gpubeton.errors import DeviceError, NvjpegError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.gpu.adapter_lane import AdapterLane
from gpubeton.gpu.augment import Augmenter
from gpubeton.gpu.batched_lane import BatchedLane
from gpubeton.gpu.nvjpeg import Backend, State, load
from gpubeton.gpu.single_lane import SingleLane
from gpubeton.gpu.slot import Slot, Table
from gpubeton.transforms import ImageMixup, NormalizeImage, RandomHorizontalFlip, ToDevice, ToTensor
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.gpu_path.crew_bench import host_of, job_of, made_by_the_cpu, open_gpu, program_of
from tests.gpu_path.pieces import Pieces
from tests.gpu_path.waits import Wait, take_away, waits_of_the_gpu_path
from tests.gpu_path.zoo import bytes_of, gpu_loader, raw, stored, twin, write_images
from tests.simulator.device import SimulatedDevice

pytestmark = pytest.mark.timeout(600)  # the first to make an image on the CPU waits until that is compiled

CROP = RandomResizedCropRGBImageDecoder((12, 10))
HALVES = NormalizeImage((120, 110, 100), (60, 50, 40), np.float16)
PLAIN = [CROP, RandomHorizontalFlip(), HALVES, ToTensor(), ToDevice("cuda:0")]
MIXED = [CROP, ImageMixup(0.5, False), HALVES, ToTensor(), ToDevice("cuda:0")]

JPEGS = [stored(jpeg(photo(30 + number, 45 - number, number))) for number in range(16)]
RAWS = [raw(photo(30 + number, 45 - number, number)) for number in range(16)]
#: The CPU makes these.
FOREIGN = [stored(pillow_jpeg(photo(30 + number, 45 - number, number), "CMYK")) for number in range(16)]

#: How slow a queue is, in microseconds for each piece of work. With all waits it makes no difference; without one, a
#: busy machine may need more for it to show.
DELAYS = (5_000, 20_000, 80_000, 300_000)

#: Streams by the order in which they are made: `Streams`, then the lanes' states.
PLANT, SEND, AUGMENT, TAIL, REPAIR = range(5)
ENGINES, SINGLES = (5, 6, 7), (10, 11)
#: Without engines: those of the processors, and of single images.
DECODERS = (5, 6, 7, 8)
#: Where the lane of single images marks that all of a piece is done; nothing else is in it.
MARKS = 12


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of JPEGs, raw images and those of the CPU, and what is in them."""
    folder = tmp_path_factory.mktemp("files")
    images = {"jpegs": JPEGS, "raws": RAWS, "foreign": FOREIGN}
    return {name: (write_images(folder / f"{name}.beton", own), own) for name, own in images.items()}


@pytest.fixture(scope="module")
def expected(files, tmp_path_factory):
    """What the CPU makes of the same pixels: a function of the file's name and the pipeline."""
    made = {}

    def expected(name, pipeline):
        key = name, pipeline is MIXED
        if key not in made:
            path = write_images(tmp_path_factory.mktemp("twins") / "twin.beton", twin(files[name][1]))
            # This torch may know no GPU, and there is nothing to be moved.
            loader = gpu_loader(path, pipeline[:-1], device="cpu", batch_size=4)
            made[key] = [batch[0] for batch in loader]
            loader.close()
        return made[key]

    return expected


class Bench:
    """What scenarios need; `symptoms` is what they find."""

    def __init__(self, gpus, faults, files, expected, monkeypatch):
        self.gpus, self.faults, self.files, self.expected, self.monkeypatch = gpus, faults, files, expected, monkeypatch
        self.symptoms = set()
        self.delay = DELAYS[0]

    def slow(self, *places):
        for place in places:
            self.slow_stream(self.gpus[0].streams[place])

    def slow_stream(self, stream=None):
        """One, or all."""
        self.faults.slow_down(self.delay, least=self.delay, stream=stream)

    def loader(self, name="jpegs", pipeline=PLAIN, **options):
        path, _ = self.files[name]
        return gpu_loader(path, pipeline, device="auto", batch_size=4, more={"number": None}, **options)

    def compare(self, loader, name="jpegs", pipeline=PLAIN):
        """Go through an epoch; the batches are looked at when they come, and kept."""
        kept = []
        for (images,), wanted in zip(loader, self.expected(name, pipeline), strict=True):
            if not np.array_equal(bytes_of(images), bytes_of(wanted)):
                self.symptoms.add("wrong pixels")
            kept.append(images)
        return kept

    def count_decoded(self, images):
        """None is decoded twice, unless a sentinel has tripped."""
        if len(self.faults.notes("image")) > images:
            self.symptoms.add("a sentinel tripped")

    def seen(self):
        if self.faults.take_misuses():
            self.symptoms.add("misuse")
        return self.symptoms


@pytest.fixture
def bench(gpus, faults, files, expected, monkeypatch):
    return Bench(gpus, faults, files, expected, monkeypatch)


# --- scenarios: batches


def an_epoch(bench, *, slow, name="jpegs", pipeline=PLAIN, **options):
    """An epoch with some slow queues."""
    loader = bench.loader(name, pipeline, **options)
    bench.slow(*slow)
    kept = bench.compare(loader, name, pipeline)
    if name == "jpegs":
        bench.count_decoded(len(JPEGS))
    loader.close()
    del kept


def sentinels_come_late(bench):
    """Descriptions are on the device at once, and sentinels later than anything else."""
    send = Table.send

    def send_and_wait(table, stream):
        bench.faults.slow_down(0, stream=stream)
        send(table, stream)
        stream.synchronize()
        bench.slow(PLANT)

    bench.changes.setattr(Table, "send", send_and_wait)
    loader = bench.loader()
    # In the stream's order it takes as long, if the sentinels were waited for.
    bench.slow(AUGMENT)
    kept = bench.compare(loader)
    bench.count_decoded(len(JPEGS))
    loader.close()
    del kept


def memory_of_batches_had_an_owner(bench):
    """Torch gives memory out again whose former owner's work is still in the stream that it is for."""
    empty, garbage = SimulatedDevice.empty, []

    def used_before(device, shape, dtype, stream):
        tensor = empty(device, shape, dtype, stream)
        garbage.append(device.allocate_pinned(tensor.nbytes))
        device.copy(tensor.data_ptr(), garbage[-1].address, tensor.nbytes, stream)
        return tensor

    bench.changes.setattr(SimulatedDevice, "empty", used_before)
    an_epoch(bench, slow=[TAIL])


# --- scenarios: single images


def a_repair(bench, *, slow, lanes=("hardware", "hybrid"), every_time=False):
    """An image is left out, once or always by the engines, and made by itself."""
    which = {"backend": Backend.HARDWARE} if every_time else {"times": 1}
    bench.faults.skip_image(JPEGS[5].data, **which)
    loader = bench.loader(lanes=lanes)
    bench.slow(*slow)
    kept = bench.compare(loader)
    if not every_time and loader.gpu._free[0].left_to:
        bench.symptoms.add("left to others although its own lane can")
    loader.close()
    del kept


# --- scenarios: lanes


def is_idle(bench, place):
    return bench.gpus[0].streams[place].is_idle


def pieces_of_a_lane(bench, lane, pieces, images):
    for stream in bench.gpus[0].streams[:2]:
        bench.slow_stream(stream)
    own = [pieces.make(image) for image in images]
    events = [lane.begin(piece).event for piece in own]
    for piece, event in zip(own, events, strict=True):
        if event is not None:
            event.synchronize()
        if event is not None and set(pieces.state_of(piece)) != {"decoded"}:
            bench.symptoms.add("wrong pixels")
    lane.settle()
    lane.close()


def a_state_is_used_again(bench, device):
    """For batches of other sizes, so that it is initialised each time."""
    lane = BatchedLane(device, load().create(Backend.HARDWARE), most=8, num_states=1)
    images = [[own.data for own in JPEGS[: 2 + number % 3]] for number in range(5)]
    pieces_of_a_lane(bench, lane, Pieces(device), images)


def a_piece_fails(bench, device):
    """Images before the culprit are on their way when the call returns its status."""
    lane = BatchedLane(device, load().create(Backend.HARDWARE), most=8, num_states=1)
    good, bad = [own.data for own in JPEGS[:3]], pillow_jpeg(photo(9, 9), progressive=True)
    pieces_of_a_lane(bench, lane, Pieces(device), [good, [*good, bad], good, good[:2]])


def an_image_fails_after_it_was_begun(bench, device):
    """Its bytes are overwritten by whoever repairs it."""
    decode = State.decode

    def failing(state, *arguments):
        decode(state, *arguments)
        raise NvjpegError("planted")

    bench.slow_stream()
    lane, pieces = SingleLane(device, load().create(Backend.DEFAULT)), Pieces(device)
    piece = pieces.make([JPEGS[0].data])
    bench.changes.setattr(State, "decode", failing)
    lane.begin(piece)
    pieces.kept[0][0][0].array[:] = 0
    lane.settle()
    lane.close()


def images_of_one_piece_with_several_states(bench, device):
    lane = SingleLane(device, load().create(Backend.DEFAULT))
    pieces_of_a_lane(bench, lane, Pieces(device), [[own.data for own in JPEGS[:4]]])


# --- scenarios: a crew


def workers_are_slow(bench, device):
    """The CPU's workers come to their images late."""
    gate, run = threading.Event(), Worker.run

    def late(worker, *arguments):
        gate.wait(bench.delay / 1e6)
        return run(worker, *arguments)

    bench.changes.setattr(Worker, "run", late)
    gpu, program = open_gpu(device), program_of()
    crew = gpu.crew([program], host_of())
    outs = [crew.take(0, 4) for _ in range(3)]
    for number, out in enumerate(outs):
        crew.submit([job_of(program, FOREIGN[4 * number :][:4], out)])
    for number, out in enumerate(outs):
        crew.collect()
        wanted, _ = made_by_the_cpu(program_of(device="cpu"), twin(FOREIGN[4 * number :][:4]))
        if not np.array_equal(out.numpy(), wanted):
            bench.symptoms.add("wrong pixels")
    crew.close()
    gpu.close()


# --- scenarios: the end


def check_idle(bench, device):
    """Nothing may be under way."""
    if any(not stream.is_idle for place, stream in enumerate(device.streams) if place != MARKS):
        bench.symptoms.add("work under way")


def leaving(bench, device, *, slow, fails=False):
    """The crew is closed while batches are under way; or after an error, when decoding has begun."""
    gpu = open_gpu(device)
    crew = gpu.crew([program_of()], host_of())
    if fails:
        begin = BatchedLane.begin if slow is ENGINES else SingleLane.begin

        def failing(lane, piece):
            begin(lane, piece)
            raise DeviceError("planted")

        bench.changes.setattr(BatchedLane if slow is ENGINES else SingleLane, "begin", failing)
    for place in slow:
        bench.slow_stream(device.streams[place])
    # What the crew itself frees would crash the simulator if it were in use.
    bench.changes.setattr(Augmenter, "free", lambda _augmenter: None)
    bench.changes.setattr(Table, "free", lambda _table: None)
    crew._give_back = lambda _equipment: check_idle(bench, device)
    outs = []
    for first in (0, 4, 8):
        outs.append(crew.take(0, 4))
        images = [*JPEGS[first : first + 3], stored(pillow_jpeg(photo(20, 20), progressive=True))]
        crew.submit([job_of(program_of(), images, outs[-1])])
    crew._works[-1].is_issued.wait()
    crew.close()
    equipment = crew._equipment
    for stream in device.streams:
        stream.synchronize()
    equipment.close()
    del outs


def closing_equipment(bench, device):
    """Its memory is freed."""
    gpu = open_gpu(device)
    (equipment,) = gpu._free
    gpu._free.clear()
    free = Slot.free

    def checked(slot):
        check_idle(bench, device)
        for stream in device.streams:
            stream.synchronize()
        free(slot)

    bench.changes.setattr(Slot, "free", checked)
    bench.slow_stream()
    slot = equipment.slots[0]
    staging, arena = slot.staging.reserve(64).address, slot.arena.reserve(64).address
    device.copy(arena, staging, 64, equipment.streams.send)
    equipment.close()


def one_of_the_epochs_queues(bench, device, place):
    """Whichever of them has work."""
    gpu = open_gpu(device)
    (equipment,) = gpu._free
    memory = device.allocate_pinned(64)
    bench.slow_stream()
    device.copy(memory.address, memory.address, 64, device.streams[place])
    equipment.settle()
    check_idle(bench, device)
    device.streams[place].synchronize()
    gpu.close()


def the_feeder_ends(bench, device):
    """It may be in the middle of a batch."""
    gpu = open_gpu(device)
    crew = gpu.crew([program_of()], host_of())
    bench.slow_stream(device.streams[PLANT])
    equipment, thread = crew._equipment, crew._feeder._thread
    settle = equipment.settle

    def checked():
        if thread.is_alive():
            bench.symptoms.add("work under way")
        while thread.is_alive():
            threading.Event().wait(0.001)
        settle()

    equipment.settle = checked
    out = crew.take(0, 4)
    crew.submit([job_of(program_of(), JPEGS[:4], out)])
    crew.close()
    gpu.close()


def another_library_settles(bench, device):
    class Copying:
        def decode(self, data, targets, stream):
            device.copy(memory.address, memory.address, 64, stream)
            return {}

    memory = device.allocate_pinned(64)
    bench.slow_stream()
    pieces, lane = Pieces(device), AdapterLane(device, Copying())
    lane.begin(pieces.make([JPEGS[0].data]))
    lane.settle()
    check_idle(bench, device)
    for stream in device.streams:
        stream.synchronize()


SM_AND_HYBRID = {"lanes": ("sm", "hybrid")}
LEAVING_EARLY = partial(leaving, slow=ENGINES, fails=True)

#: For each wait what shows that it is missing: scenarios, some of them in one way of hardware to write alone.
CASES = {
    Wait("augment", "_put", "stream.synchronize"): [partial(an_epoch, slow=[PLANT])],
    Wait("crew", "submit", "_equipment.streams.augment.wait"): [memory_of_batches_had_an_owner],
    Wait("crew", "collect", "work.is_issued.wait"): [partial(an_epoch, slow=[PLANT])],
    Wait("crew", "collect", "work.slot.done.synchronize"): [partial(an_epoch, slow=[AUGMENT])],
    Wait("crew", "mix", "_mixed.synchronize"): [partial(an_epoch, slow=[TAIL], pipeline=MIXED, batches_ahead=3)],
    Wait("crew", "arrive", "device.hand_over"): [partial(an_epoch, slow=[TAIL], pipeline=MIXED)],
    Wait("feeder", "_issue", "_planted.synchronize"): [sentinels_come_late],
    Wait("feeder", "_issue", "streams.augment.wait"): [
        partial(an_epoch, slow=[SEND], name="raws", raw="bytes"),
        partial(an_epoch, slow=[SEND], name="raws", raw="bytes", os_cache=False),
        partial(an_epoch, slow=[SEND], name="raws", raw="cpu"),
    ],
    Wait("feeder", "_begin", "_equipment.streams.augment.wait"): [partial(an_epoch, slow=DECODERS, **SM_AND_HYBRID)],
    Wait("single", "decode", "_stream.synchronize"): [partial(a_repair, slow=[REPAIR])],
    Wait("single", "decode", "event.synchronize"): [partial(a_repair, slow=DECODERS, **SM_AND_HYBRID)],
    Wait("single", "_augment", "_stream.synchronize"): [partial(a_repair, slow=[REPAIR], every_time=True)],
}

LANE_CASES = {
    Wait("feeder", "_issue", "_levels.collect_levels"): workers_are_slow,
    Wait("state_ring", "next", "entry.event.synchronize"): a_state_is_used_again,
    Wait("batched_lane", "_begin", "entry.stream.synchronize"): a_piece_fails,
    Wait("single_lane", "_begin_one", "entry.stream.synchronize"): an_image_fails_after_it_was_begun,
    Wait("single_lane", "_begin_one", "_stream.wait"): images_of_one_piece_with_several_states,
    Wait("crew", "close", "_equipment.settle"): partial(leaving, slow=[AUGMENT]),
    Wait("equipment", "settle", "streams.synchronize"): partial(leaving, slow=[AUGMENT]),
    Wait("equipment", "settle", "lane.settle"): LEAVING_EARLY,
    Wait("batched_lane", "settle", "_ring.settle"): LEAVING_EARLY,
    Wait("single_lane", "settle", "_ring.settle"): partial(leaving, slow=SINGLES, fails=True),
    Wait("state_ring", "settle", "entry.stream.synchronize"): LEAVING_EARLY,
    Wait("equipment", "close", "settle"): closing_equipment,
    Wait("equipment", "synchronize", "stream.synchronize"): partial(one_of_the_epochs_queues, place=SEND),
    Wait("feeder", "close", "_thread.join"): the_feeder_ends,
    Wait("adapter_lane", "settle", "_stream.synchronize"): another_library_settles,
}


EARLY, IN_ORDER = True, False

#: Simulated engines that write in the stream's order look at all images before they begin with the first.
NEVER_SEEN = [(Wait("batched_lane", "_begin", "entry.stream.synchronize"), IN_ORDER)]


def test_every_wait_has_a_test_here():
    assert waits_of_the_gpu_path() == {*CASES, *LANE_CASES}


def ids(value):
    if isinstance(value, bool):
        return "early" if value is EARLY else "in order"
    return str(value) if isinstance(value, Wait) else None


def is_seen(scenario, bench, delays):
    """Whether a scenario shows anything, in one of these times."""
    for bench.delay in delays:
        bench.gpus.clear()
        bench.symptoms.clear()
        with bench.monkeypatch.context() as bench.changes:
            scenario(bench)
        bench.faults.slow_down(0)
        bench.faults.forget_notes()
        if bench.seen():
            return True
    return False


@pytest.mark.parametrize("is_early", [EARLY, IN_ORDER], ids=ids)
@pytest.mark.parametrize(("wait", "scenario"), [(wait, one) for wait, own in CASES.items() for one in own], ids=ids)
def test_without_a_wait_batches_go_wrong_and_with_it_they_are_right(bench, faults, wait, scenario, is_early):
    faults.early_write = is_early
    assert not is_seen(scenario, bench, DELAYS[:1]), bench.symptoms
    take_away(bench.monkeypatch, wait)
    assert is_seen(scenario, bench, DELAYS), f"without {wait}"


@pytest.mark.parametrize(
    ("wait", "scenario", "is_early"),
    [
        (wait, scenario, is_early)
        for wait, scenario in LANE_CASES.items()
        for is_early in (EARLY, IN_ORDER)
        if (wait, is_early) not in NEVER_SEEN
    ],
    ids=ids,
)
def test_without_a_wait_work_meets_other_work_and_with_it_none_does(bench, faults, wait, scenario, is_early):
    faults.early_write = is_early

    def on_a_device(bench):
        bench.gpus[0] = device = SimulatedDevice(0)
        with device.active():
            scenario(bench, device)

    assert not is_seen(on_a_device, bench, DELAYS[:1]), bench.symptoms
    take_away(bench.monkeypatch, wait)
    assert is_seen(on_a_device, bench, DELAYS), f"without {wait}"
