from __future__ import annotations

import pytest

from gpubeton.errors import FieldArgumentsError
from gpubeton.format.field_arguments import IMAGE_KINDS, ImageKind

KINDS = list(IMAGE_KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_read_back_from_the_arguments_of_a_descriptor(kind):
    arguments = kind.to_bytes()
    assert len(arguments) == 1024
    assert ImageKind.describes(arguments)
    assert ImageKind.from_bytes(arguments) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_arguments_of_a_derived_class_have_to_be_read_by_that_class(kind):
    arguments = kind.to_bytes(is_derived=True)
    assert not ImageKind.describes(arguments)
    assert ImageKind.from_bytes(arguments) == kind


def test_other_arguments_are_refused():
    assert not ImageKind.describes(bytes(1024))
    with pytest.raises(FieldArgumentsError, match="ImageField"):
        ImageKind.from_bytes(bytes(1024))
    unknown = IMAGE_KINDS["gray"].to_bytes().replace(b"gray", b"grey")
    assert ImageKind.describes(unknown)
    with pytest.raises(FieldArgumentsError, match=r"b'grey', .* gray, rgb, rgba, gray16"):
        ImageKind.from_bytes(unknown)


def test_kinds_differ_in_channels_or_bits():
    assert len({(kind.channels, kind.bits) for kind in KINDS}) == len(KINDS)
    assert [kind.name for kind in KINDS if kind.has_jpeg] == ["gray", "rgb"]
    assert [kind.pixel_size for kind in KINDS] == [1, 3, 4, 2, 6, 8]
