"""Messages too many to hold: read and merged in groups, by processes of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otmoe.cli.common import Failed, few, progress
from otmoe.cli.inbox import Inbox, unreadable
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from otmoe import Aggregation
    from otmoe.aggregation.group import Group, GroupTask


def merged_in_groups(
    paths: Sequence[Path],
    support: Any,
    exclude: Sequence[str],
    skip_bad: bool,
    quiet: bool,
    **asked: Any,
) -> tuple[Aggregation, Inbox]:
    """Return the merging of files, and what came in by group.

    Parameters
    ----------
    paths : sequence of Path
    support : array of shape (S, d), or int
    exclude : sequence of str
        Sites that are left out.
    skip_bad : bool
        Go on without files that cannot be read; else the first stops everything.
    quiet : bool
    **asked
        Of :func:`otmoe.aggregation.merge.merged`.
    """
    from loky import cpu_count

    from otmoe.aggregation.group import Grouping, merge_group
    from otmoe.aggregation.merge import merged
    from otmoe.workers.gather import HERE, Workers, gather
    from otmoe.workers.pools import local_workers

    sizes: dict[str, int] = {}
    bad: dict[str, str] = {}
    seen: set[str] = set()

    def note(number: int, group: Group) -> None:
        bad.update(group.bad)
        if bad and not skip_bad:
            raise unreadable(bad, len(paths), hint=True)
        seen.update(group.sites)
        if group.message is not None:
            sizes[group.message.site] = group.size

    def run(tasks: Sequence[GroupTask]) -> list[Group]:
        n_jobs = min(int(cpu_count()), len(tasks))
        workers = HERE if n_jobs == 1 else Workers(local_workers(n_jobs))
        names = [task.name for task in tasks]
        with progress("groups of sites", quiet, len(tasks)) as report:
            found, failures = gather(merge_group, tasks, names, workers, progress=report, each=note)
        if failures:
            raise Failed(Error.GROUP_FAILED, name=failures[0].name, why=failures[0].cause)
        for site in exclude:
            if site not in seen:
                raise Failed(Error.SHELL_EXCLUDE_UNKNOWN, site=site, sites=few(sorted(seen)))
        return found

    how = Grouping(exclude=tuple(exclude), collect=True)
    result = merged(paths, support, run=run, how=how, **asked)
    return result, Inbox([], sizes, bad, len(seen) - len(exclude))
