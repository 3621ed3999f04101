"""Integers that add up modulo 2^128, against Python's own, and masks that cancel."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from otmoe.documents.roster import Roster
from otmoe.federation.keys import Key
from otmoe.federation.masking import added, frozen, negated, thawed

RING = 2**128
numbers = st.floats(-(2.0**58), 2.0**58)
words = st.lists(st.integers(0, RING - 1), min_size=1, max_size=5)


def as_words(integers):
    return np.array([(i % 2**64, i >> 64) for i in integers], np.uint64)


def as_integers(words):
    return [int(low) + (int(high) << 64) for low, high in words]


@given(words, st.integers(0, RING - 1))
def test_sums_are_those_of_whole_numbers(some, other):
    found = added(as_words(some), as_words([other] * len(some)))
    assert as_integers(found) == [(one + other) % RING for one in some]
    assert as_integers(negated(as_words(some))) == [-one % RING for one in some]


@given(st.lists(numbers, min_size=1, max_size=6))
def test_a_number_is_kept_to_the_last_place(values):
    integers = as_integers(frozen(values, 10))
    for integer, value in zip(integers, values, strict=True):
        signed = integer - RING if integer >= RING // 2 else integer
        assert abs(Fraction(signed, 2**64) - Fraction(value)) <= Fraction(1, 2**63)
    back = thawed(frozen(values, 10))
    np.testing.assert_allclose(back, values, rtol=2e-16, atol=2.0**-63)


@given(st.lists(numbers, min_size=3, max_size=12))
def test_the_sum_is_closer_than_one_by_floating_point(values):
    total = frozen(values[:1], len(values))
    for value in values[1:]:
        total = added(total, frozen([value], len(values)))
    exact = sum(map(Fraction, values))
    found = float(thawed(total)[0])
    rounded = Fraction(float(np.spacing(abs(found)))) / 2  # one rounding, to the nearest number
    assert abs(Fraction(found) - exact) <= rounded + len(values) * Fraction(2) ** -63


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**61, -(2.0**61)])
def test_what_might_overflow_is_refused(value):
    refused("too_large_to_mask").by(frozen, [1.0, value], 3)
    if np.isfinite(value):
        assert thawed(frozen([value], 2)) == value


# -- masks -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("keys")
    return {
        name: Key.create(folder / f"{name}.key") for name in ("Brest", "Lyon", "Nantes", "Nice")
    }


def context_of(seed):
    return f"{seed:064x}"


@pytest.mark.parametrize("seed", range(20))
def test_masks_cancel(keys, seed):
    rng = np.random.default_rng(seed)
    some = dict(list(keys.items())[: rng.integers(3, 5)])
    roster = Roster({name: key.public for name, key in some.items()})
    values = rng.normal(size=(len(some), 30)) * 10.0 ** rng.integers(-15, 15, 30)
    total = np.zeros((30, 2), np.uint64)
    for row, (name, key) in zip(values, some.items(), strict=True):
        sent = key.masked(frozen(row, len(some)), roster, name, context_of(seed))
        total = added(total, sent)
    exact = [float(sum(map(Fraction, column))) for column in values.T]
    np.testing.assert_allclose(thawed(total), exact, rtol=2e-16, atol=len(some) * 2.0**-63)


def test_without_one_of_them_nothing_is_left_to_read(keys):
    roster = Roster({name: key.public for name, key in keys.items()})
    sent = {n: k.masked(frozen([1.0] * 500, 4), roster, n, context_of(1)) for n, k in keys.items()}
    for left_out in keys:
        total = np.zeros((500, 2), np.uint64)
        for name in keys:
            total = total if name == left_out else added(total, sent[name])
        assert looks_uniform(total)
        assert not np.any(np.abs(thawed(total)) < 2.0**40)


def looks_uniform(words):
    """Say whether the bits of integers are as evenly spread as chance would have them."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1), axis=1)
    ones, n = bits.sum(axis=0, dtype=float), len(words)
    z = (ones - n / 2) / np.sqrt(n / 4)  # one of each of 128 places
    distinct = len(np.unique(words, axis=0)) == n
    return bool(distinct and np.abs(z).max() < 5 and abs(z.std() - 1) < 0.4)


def test_a_masked_reply_looks_the_same_whatever_it_says(keys):
    roster = Roster({name: key.public for name, key in keys.items()})
    for values in (np.zeros(2000), np.ones(2000), np.full(2000, -1e9)):
        assert not looks_uniform(frozen(values, 4))
        assert looks_uniform(keys["Lyon"].masked(frozen(values, 4), roster, "Lyon", context_of(2)))


def test_another_context_changes_every_number(keys):
    roster, plain = Roster({n: k.public for n, k in keys.items()}), frozen(np.zeros(300), 4)
    one, two = (keys["Lyon"].masked(plain, roster, "Lyon", context_of(i)) for i in (3, 4))
    assert np.all(one != two)
    assert looks_uniform(added(one, negated(two)))


def test_a_key_of_small_order_is_refused(keys):
    roster = Roster({**{n: k.public for n, k in keys.items()}, "Nowhere": "00" * 32})
    with refused("roster_bad_key", site='"Nowhere"'):
        keys["Lyon"].masked(frozen([1.0], 5), roster, "Lyon", context_of(5))


# -- files of keys ---------------------------------------------------------------------------------


def test_a_key_file_is_its_owners_alone_and_never_replaced(tmp_path):
    pytest.importorskip("cryptography")
    path = tmp_path / "lyon.key"
    key = Key.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["lyon.key"]
    before = path.read_bytes()
    refused("key_exists").by(Key.create, path)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == [
        "lyon.key"
    ]
    assert Key.load(path).public == Key.at(path).public == key.public
    assert key.public not in before.decode() and before.decode().strip() not in repr(key)
    assert Key.at(tmp_path / "other.key").public != key.public
    refused("no_folder_to_write").by(Key.create, tmp_path / "none" / "lyon.key")
    refused("no_key").by(Key.load, tmp_path / "none.key")


@pytest.mark.parametrize("text", [b"", b"ab", b"zz" * 32, b"\xff" * 32, b"ab" * 33])
def test_what_is_no_key_is_refused(tmp_path, text):
    pytest.importorskip("cryptography")
    (tmp_path / "lyon.key").write_bytes(text)
    refused("not_a_key").by(Key.load, tmp_path / "lyon.key")
