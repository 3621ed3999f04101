"""Spoilt documents of every kind: each is refused by a sentence or valid, in bounded time and room.

``make fuzz`` runs this: ``python tests/fuzz.py --cases 10000``. Kinds run in processes of their
own, so that room is their own. The first is all documents, for every command that reads one.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "documents"))

SECONDS, MEGABYTES = 5.0, 500.0


class TooSlow(Exception):
    """A mutant took longer than it may."""


@contextmanager
def limited(seconds):
    """Interrupt what takes longer."""

    def late(number, frame):
        raise TooSlow(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- what is spoilt, and what is done with it ----------------------------------------------------


@cache
def parts():
    """Return the tools of the tests: they take a while to import."""
    import test_hostile as hostile

    return hostile


def structured(kind, text, rng):
    """Spoil one part of a document that this kind alone has; the text stays JSON."""
    h, document = parts(), json.loads(text)
    numbers = [0.0, -1.0, 1e30, -1e30, 1e-30, 1e15, 2.5, float(rng.normal())]
    names = ["", "age", "x" * 300, "sex=m", "\u200b", "L\u0443on", "a\nb", "😀" * 60]
    for _ in range(int(rng.integers(1, 4))):
        document = json.loads(json.dumps(document))  # what was repeated becomes copies
        found = [
            (holder, key)
            for holder, key in h.places(document)
            if kind not in HOLDS or any(part in _path(document, holder) for part in HOLDS[kind])
        ] or list(h.places(document))
        holder, key = h.one_of(rng, found)
        value = holder[key]
        if isinstance(value, dict) and value:
            name = h.one_of(rng, list(value))
            way = rng.integers(3)
            if way == 0:
                value[h.one_of(rng, names)] = value.pop(name)
            elif way == 1:
                most = min(5000, 2 + 10**6 // len(json.dumps(value[name])))  # or it takes the room
                value |= {str(i): value[name] for i in range(int(rng.integers(2, 1 + most)))}
            else:
                del value[name]
        elif isinstance(value, list) and value:
            way = rng.integers(4)
            if way == 0:
                most = min(50, 3 + 10**6 // len(json.dumps(value)))
                holder[key] = value * int(rng.integers(2, most))
            elif way == 1:
                holder[key] = value[: int(rng.integers(len(value)))]
            elif way == 2:
                holder[key] = value[::-1]
            else:
                i = int(rng.integers(len(value)))
                value[i] = h.one_of(rng, [value[0], value[-1], None, [], *numbers])
        elif isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, int | float):
            ways = [*numbers, -value, value * 10 ** rng.uniform(-9, 9), value + 1, int(value)]
            holder[key] = h.one_of(rng, ways)
        elif isinstance(value, str):
            holder[key] = h.one_of(rng, [*names, value[::-1], value + value])
    return json.dumps(document).encode()


HOLDS = {
    "aggregation": ["aggregation"],
    "between": ["between"],
    "sketch": ["sketch"],
}
"""Where the part of a kind is that has no document of its own."""


def _path(document, holder):
    """Return the names of the parts in which a list or an object lies."""
    for name, value in document.items() if isinstance(document, dict) else ():
        if value is holder or _within(value, holder):
            return [name]
    return []


def _within(value, holder):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(part is holder or _within(part, holder) for part in inner)


def original(kind, family):
    h = parts()
    if kind in ("message", "sketch"):
        return h.MESSAGES[family].to_json()
    if kind == "model":
        return h.ModelFile(h.MESSAGES[family].model, h.SPEC, {"made by": "Åsa"}).to_json()
    if kind == "features":
        return h.SPEC.to_json()
    if kind in ("aggregation", "between"):
        return (h.merged_file if kind == "aggregation" else h.personal_file)(family)
    state, request, replies, _ = h.asked(family)
    return {"state": state, "request": request, "reply": replies[0]}[kind].to_json()


def used(kind, text, family, folder):
    """Read a text and do what one does with it; return how far it came."""
    h = parts()
    if kind in ("message", "sketch"):
        return h.outcome(text, family, support=40 if kind == "sketch" else None)
    if kind in ("state", "request", "reply"):
        return h.refined(text, family, ["state", "request", "reply"].index(kind))
    path = Path(folder, "upload.json")
    path.write_bytes(text)
    try:
        if kind == "features":
            spec = h.FeatureSpec.load(path)
            assert h.FeatureSpec.from_json(spec.to_json()) == spec
            return "read"
        file = h.load_model_file(path)
        again = file.to_json()
        assert type(file).from_json(again).to_json() == again
        between = getattr(file, "between", None)
        for effect in () if between is None else between.sites:
            between.model_of(effect.site)
        zeros = np.zeros((3, file.model.n_features))
        assert np.all(np.isfinite(file.model.predict(zeros)))
        h.report(path)
        return "read"
    except h.MessageError as error:
        assert error.where == str(path)
        h.assert_sentence(error)
        return "refused"


KINDS = (
    "commands",
    "message",
    "model",
    "aggregation",
    "request",
    "reply",
    "state",
    "features",
    "between",
    "sketch",
)


def ways_of(part):
    """Return how a document is spoilt: blindly, by its structure, by numbers that matter in it."""
    h = parts()
    more = [h.extreme] * 3 if part in ("message", "Lyon.moe.json") else []
    if part in ("reply", "state", "Lyon.reply.json", "state.json"):
        more = [h.wilder] * 3
    return [*h.WAYS[:7], *([structured] * 7), *more]


def unspoilt(folder):
    """Run every command once on what nobody has spoilt, so that it is known to go all the way."""
    import fuzz_commands as commands

    for family in commands.FAMILIES:
        for file in commands.COMMANDS:
            for command in commands.lines(family, file):
                text = Path(commands.study(family), file).read_bytes()
                how = commands.outcome(family, file, command, text, folder)
                strict = "policy.json" not in command and "--fit" not in command
                wanted = "refused" if commands.refused(family, command) else "done"
                assert how == wanted or not strict, (family, command)


def run(kind, cases, seed):
    """Try mutants of one kind; return a line of figures, and print what went wrong."""
    h = parts()
    counts, wrong, slowest, most = {}, 0, 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for family in h.FAMILIES:
            first = "message" if kind == "commands" else kind
            used(first, original(first, family).encode(), family, folder)  # compiled, imported
        if kind == "commands":
            unspoilt(folder)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        for case in range(cases):
            rng = np.random.default_rng([seed, KINDS.index(kind), case])
            if kind == "commands":
                import fuzz_commands as commands

                family, file, command = commands.chosen(rng, h.one_of)
                text = Path(commands.study(family), file).read_bytes()
                part, what = commands.PARTS.get(file, file), " ".join(command)
                attempt = partial(commands.outcome, family, file, command, folder=folder)
            else:
                family = what = h.one_of(rng, list(h.FAMILIES))
                text, part = original(kind, family).encode(), kind
                attempt = partial(used, kind, family=family, folder=folder)
            way = h.one_of(rng, ways_of(part))
            try:
                text = structured(part, text, rng) if way is structured else way(text, rng)
            except ValueError:  # no JSON: a private key
                text = h.flipped(text, rng)
            begin = time.process_time()
            try:
                with limited(12 * SECONDS), warnings.catch_warnings():
                    warnings.simplefilter("error", RuntimeWarning)
                    how = attempt(text=text)
                spent = time.process_time() - begin
                room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - base
                slowest, most = max(slowest, spent), max(most, room)
                if spent > SECONDS or room > MEGABYTES:
                    raise TooSlow(f"{spent:.1f} s, {room:.0f} MB")
            except Exception as error:
                how, wrong = "WRONG", wrong + 1
                if wrong <= 10:
                    name = getattr(way, "__name__", way)
                    print(f"{kind} {case} ({what}, {name}): {type(error).__name__}: {error}"[:300])
                    Path(tempfile.gettempdir(), f"fuzz-{kind}-{case}.json").write_bytes(text)
            counts[how] = counts.get(how, 0) + 1
    figures = ", ".join(f"{n:,} {how}" for how, n in sorted(counts.items()))
    print(f"{kind}: {cases:,} mutants ({figures}); slowest {slowest:.1f} s, {most:.0f} MB at most")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="mutants of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, help="one kind only, in this process")
    parser.add_argument("--jobs", type=int, default=1, help="kinds at a time")
    options = parser.parse_args()
    if options.kind is not None:
        return int(run(options.kind, options.cases, options.seed) > 0)

    def alone(kind):  # in a process of its own, so that room is its own
        command = [sys.executable, __file__, "--kind", kind]
        command += ["--cases", str(options.cases), "--seed", str(options.seed)]
        return subprocess.run(command, check=False).returncode

    with ThreadPoolExecutor(options.jobs) as pool:
        return int(any(list(pool.map(alone, KINDS))))


if __name__ == "__main__":
    sys.exit(main())
